// Empty stand-ins for the kernel instances that the subset leaves out, so that it links: of the MoE
// kernels 4 bits are kept, codebooks MCG and MUL1 (and 3INST where the kernel has it).
#include <cuda_fp16.h>
#include <ATen/Tensor.h>
#include "quant/comp_units/exl3_moe_coop_instances.cuh"
#include "quant/comp_units/exl3_moe_instances.cuh"

#define MOE(NAME) fp_exl3_moe_kernel exl3_moe_kernel_##NAME() { return nullptr; }
#define MOE_ROWS(K) MOE(K##_n128_cb2_m32) MOE(K##_n128_cb2_m64)
#define MOE_MUL1(K) MOE(K##_n128_cb2) MOE(K##_n256_cb2) MOE_ROWS(K)
#define MOE_ALL(K) MOE(K##_n128_cb1) MOE(K##_n256_cb1) MOE_MUL1(K)
MOE_ALL(k0) MOE_ALL(k1) MOE_ALL(k2) MOE_ALL(k3) MOE_ALL(k5) MOE_ALL(k6) MOE_ALL(k7) MOE_ALL(k8)
MOE_ROWS(k4)
MOE_MUL1(h1) MOE_MUL1(h2) MOE_MUL1(h3)

#define COOP(K) \
    MoeCoopKernel exl3_moe_coop_kernel_a_k##K(int, int, bool) { return {}; } \
    MoeCoopKernel exl3_moe_coop_kernel_b_k##K(int, bool) { return {}; }
#define COOP_HALF(K) \
    MoeCoopKernel exl3_moe_coop_kernel_a_h##K(int, bool) { return {}; } \
    MoeCoopKernel exl3_moe_coop_kernel_b_h##K(bool) { return {}; }
COOP(1) COOP(2) COOP(3) COOP(5) COOP(6) COOP(7) COOP(8)
COOP_HALF(1) COOP_HALF(2) COOP_HALF(3)
