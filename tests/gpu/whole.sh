#!/usr/bin/env bash
# The whole sitting on a machine with one or two GPUs, after `carry.py take` has all pieces in STORE:
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
pair=(python tests/gpu/pair/nccl.py "${with[@]}")
at_a_time=18 # so many pairs fit into two GPUs' memory
if [ "$(nvidia-smi -L | wc -l)" -lt 2 ]; then
    pair+=(--links sockets)
    at_a_time=6
fi
python tests/gpu/engine.py "${with[@]}" --together 7 &
"${pair[@]}" --only tp --together 6
wait
# The bare ones begin while the others come back.
"${pair[@]}" --only late supervised bare --together $at_a_time
