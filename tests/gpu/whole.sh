#!/usr/bin/env bash
# The whole sitting on a machine with two GPUs, after `carry.py take` has all pieces in STORE; with
# one GPU, the steps that need no other:
#
#     tests/gpu/whole.sh STORE STATE OUT [KERNELS]
#
# KERNELS is what `kernels.py` made. Called again it goes on where it was. What takes long runs
# beside each other: the first starts compile, and a dead pair is mostly waited for.
set -uo pipefail
store=$1 state=$2 out=$3 kernels=${4:-}
cd "$(dirname "$0")/../.." || exit
mkdir -p "$state" "$out"
engine=$state/engine

if [ ! -e "$engine/installed" ]; then
    python3 tests/gpu/carry.py install "$store" "$engine" || exit
    python3 -m zipfile -e "$store"/wheels/exllamav3-*.whl "$state/exl" || exit
    if [ -n "$kernels" ]; then
        ahead=$("$engine/bin/python" -c 'from flashinfer.jit import env; print(env.FLASHINFER_AOT_DIR)')
        mkdir -p "$ahead" && cp -r "$kernels"/. "$ahead" || exit
    fi
    touch "$engine/installed"
fi
export PATH=$engine/bin:$PATH
with=(--engine "$engine" --exl "$state/exl/exllamav3/exllamav3_ext" --state "$state" --out "$out")

python tests/gpu/engine.py "${with[@]}" --only || exit # prepares
gpus=$(nvidia-smi -L | wc -l)
python tests/gpu/engine.py "${with[@]}" --together 7 &
python tests/gpu/pair/nccl.py "${with[@]}" --only tp1 $([ "$gpus" -lt 2 ] || echo tp2) --together 6
wait
[ "$gpus" -ge 2 ] || exit
# 18 pairs fit into two GPUs' memory; the bare ones begin while the others come back.
python tests/gpu/pair/nccl.py "${with[@]}" --only late supervised bare --together 18
