"""The entry point `glm53` of the group `vllm.general_plugins`.

vLLM calls it in every one of its processes, possibly more than once. It imports nothing up here:
vLLM swallows an exception of the import and would start without the plugin, while one of the
function ends the process.
"""


def register() -> None:
    """Add EXL3 and what the settings ask for to vLLM, or end this process. Raises OverlayError."""
    import vllm
    from vllm.model_executor.layers.quantization import register_quantization_config
    from vllm.platforms import current_platform

    from glm53_overlay import contract, guards, settings, template
    from glm53_overlay.dense import groups

    contract.require_known(vllm.__version__, current_platform.device_type)
    contract.require_kept()
    guards.before_loading(current_platform)

    from glm53_overlay.exl3 import native
    from glm53_overlay.exl3.config import NAME, Exl3Config

    register_quantization_config(NAME)(Exl3Config)
    native.install(NAME)

    wanted = settings.load()
    template.install(wanted.api)
    dense = groups.checked(wanted.dense)
    if set(dense.values()) != {"bf16"}:
        from glm53_overlay.dense import routing

        routing.install()
    if wanted.nope == "pad576":
        from glm53_overlay import nope

        nope.install()
    if wanted.suppress_stops:
        from glm53_overlay import stops

        stops.install()
    if wanted.ablit is not None:
        from glm53_overlay import ablit

        ablit.install(wanted.ablit)
