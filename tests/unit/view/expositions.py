"""What a fake engine tells, in vLLM's words."""


def exposition(**counts: float) -> str:
    """Return what an engine tells, in vLLM's words; what is not named is 0."""
    told = dict.fromkeys(
        ("running", "waiting", "kv", "prompt", "generated", "queries", "hits", "preempted"), 0.0
    ) | dict(counts)
    labels = '{engine="0",model_name="glm"}'
    return f"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{labels} {told["running"]}
vllm:num_requests_waiting{labels} {told["waiting"]}
vllm:num_requests_waiting_by_reason{{engine="0",model_name="glm",reason="capacity"}} 99
vllm:kv_cache_usage_perc{labels} {told["kv"]}
vllm:cache_config_info{{block_size="16",engine="0",kv_cache_size_tokens="982612"}} 1.0
vllm:prompt_tokens_total{labels} {told["prompt"]}
vllm:prompt_tokens_created{labels} 1.7e+09
vllm:generation_tokens_total{labels} {told["generated"]}
vllm:prefix_cache_queries_total{labels} {told["queries"]}
vllm:prefix_cache_hits_total{labels} {told["hits"]}
vllm:num_preemptions_total{labels} {told["preempted"]}
"""


def drafting(drafts: int, *accepted: int) -> str:
    """Return the counters of speculation."""
    lines = [
        f'vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}',
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {sum(accepted)}',
    ]
    lines += [
        f"vllm:spec_decode_num_accepted_tokens_per_pos_total"
        f'{{engine="0",position="{place}"}} {count}'
        for place, count in enumerate(accepted)
    ]
    return "\n".join(lines) + "\n"


def timing(name: str, **counts: int) -> str:
    """Return a histogram of vLLM's: b0_1=3 is three observations up to 0.1 s."""
    bounds = {bound[1:].replace("_", "."): count for bound, count in counts.items()}
    return "".join(
        f'vllm:{name}_bucket{{engine="0",le="{bound.replace("inf", "+Inf")}"}} {count}\n'
        for bound, count in bounds.items()
    )
