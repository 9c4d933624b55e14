# What `engine.prefix` names: the environment, the overlay and the compiled kernels.
#
# Links into the environment, so that a change of the overlay does not unpack 4 GB again.
{
  lib,
  runCommand,
  python312,
  environment,
  exllamav3-ext,
  overlay,
}:
let
  inherit (environment) site cudaHome cudaArch;

  # Everything that a machine without a GPU can say about it.
  imports = runCommand "glm53-engine-imports" { } ''
    export HOME=$PWD
    ${engine}/bin/python - <<'END'
    import importlib.util
    import torch, transformers, flashinfer, vllm, glm53_overlay  # noqa
    from flashinfer.mla import _sparse_mla_sm120

    assert torch.version.cuda.startswith("13."), torch.version.cuda
    assert _sparse_mla_sm120._DECODE_GLM53_NOPE_DISPATCH
    found = importlib.util.find_spec("exllamav3_ext").origin
    assert found.startswith("${engine}"), found
    END
    ${engine}/bin/vllm serve --help > /dev/null
    ${cudaHome}/bin/nvcc --version
    ${engine}/bin/ninja --version
    touch $out
  '';

  engine =
    runCommand "glm53-engine-${environment.version}"
      {
        nativeBuildInputs = [ python312.pkgs.pip ];
        passthru = {
          inherit cudaHome cudaArch environment;
          tests = { inherit imports; };
        };
        meta = environment.meta // {
          description = "vLLM for GB10 with the overlay of the appliance";
        };
      }
      ''
        cp -rs --no-preserve=mode ${environment} $out

        # A link to a script would run in the environment, which has no overlay.
        for script in $out/bin/*; do
          [ "$(head -c 2 "$script")" = '#!' ] || continue
          text=$(readlink -f "$script")
          rm "$script"
          sed "1s,${environment},$out," "$text" > "$script"
          chmod +x "$script"
        done
        rm $out/pyvenv.cfg
        sed "s,${environment},$out," ${environment}/pyvenv.cfg > $out/pyvenv.cfg

        pip --python $out/bin/python install \
          --no-index --no-deps --no-cache-dir --disable-pip-version-check ${overlay.dist}/*.whl
        ln -s ${exllamav3-ext}/${site}/*.so $out/${site}/
      '';
in
engine
