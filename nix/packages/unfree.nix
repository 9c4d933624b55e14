# What is not free, by name. Nothing else may slip in.
{ lib }:
package:
lib.elem (lib.getName package) [
  # Wheels with NVIDIA's CUDA libraries and compilers.
  "glm53-environment"
  "glm53-engine"
  # Intel's OpenMP runtime.
  "glm53-engine-cpu"
  # Reads which architectures a library has code for; at build time only.
  "cuda_cuobjdump"
  # The driver.
  "nvidia-x11"
  "nvidia-settings"
  "nvidia-persistenced"
]
