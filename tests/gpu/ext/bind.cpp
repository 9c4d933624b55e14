// The functions of exllamav3_ext that the overlay and its GPU test call.
#include <cuda_fp16.h>
#include <torch/extension.h>
#include <pybind11/stl.h>
#include "quant/exl3_moe.cuh"
#include "quant/exl3_moe_coop.cuh"
#include "quant/pack.cuh"
#include "quant/reconstruct.cuh"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("reconstruct", &reconstruct);
    m.def("reconstruct_batch", &reconstruct_batch);
    m.def("reconstruct_had_batch", &reconstruct_had_batch);
    m.def("pack_trellis", &pack_trellis);
    m.def("exl3_moe", &exl3_moe);
    m.def("exl3_moe_coop", &exl3_moe_coop);
    m.def("exl3_moe_max_concurrency", &exl3_moe_max_concurrency);
}
