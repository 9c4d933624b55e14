"""The projections that the checkpoint keeps in BF16, quantised while they are loaded.

`groups` says which they are, `routing` hands them to vLLM's own online methods, `reference`
computes what those methods compute, `proof` holds the device's kernels to it while a model loads,
and `error` says what it does to the logits.
"""
