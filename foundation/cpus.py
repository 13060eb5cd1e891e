"""Facts about CPUs that LLVM lacks: caches, the width of multiply-adds, machines with them."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024

DEFAULT_CACHES: Final = (32 * KIB, 512 * KIB, 1024 * KIB)
# (L1d, L2, L3) bytes of one core, for CPUs other than the host. A shared cache is divided among its
# cores, an L2 too: four cores of a Cortex-A72 share 1 MiB.
CACHES: Final[dict[str, tuple[int, int, int]]] = {
    "znver2": (32 * KIB, 512 * KIB, 4096 * KIB),
    "znver3": (32 * KIB, 512 * KIB, 4096 * KIB),
    "znver4": (32 * KIB, 1024 * KIB, 4096 * KIB),
    "znver5": (48 * KIB, 1024 * KIB, 4096 * KIB),
    "skylake-avx512": (32 * KIB, 1024 * KIB, 1408 * KIB),
    "cascadelake": (32 * KIB, 1024 * KIB, 1408 * KIB),
    "icelake-server": (48 * KIB, 1280 * KIB, 1536 * KIB),
    "sapphirerapids": (48 * KIB, 2048 * KIB, 1920 * KIB),
    "emeraldrapids": (48 * KIB, 2048 * KIB, 5120 * KIB),
    "graniterapids": (48 * KIB, 2048 * KIB, 4096 * KIB),
    "cortex-a53": (32 * KIB, 128 * KIB, 0),
    "cortex-a55": (32 * KIB, 128 * KIB, 256 * KIB),
    "cortex-a57": (32 * KIB, 512 * KIB, 0),
    "cortex-a72": (32 * KIB, 256 * KIB, 0),
    "cortex-a73": (32 * KIB, 256 * KIB, 0),
    "cortex-a76": (64 * KIB, 512 * KIB, 512 * KIB),
    "cortex-a78ae": (64 * KIB, 256 * KIB, 512 * KIB),
    "neoverse-n1": (64 * KIB, 1024 * KIB, 1024 * KIB),
    "neoverse-n2": (64 * KIB, 1024 * KIB, 1024 * KIB),
    "neoverse-v1": (64 * KIB, 1024 * KIB, 512 * KIB),
    "neoverse-v2": (64 * KIB, 2048 * KIB, 384 * KIB),
    "ampere1": (64 * KIB, 2048 * KIB, 512 * KIB),
    "apple-a14": (128 * KIB, 3072 * KIB, 1024 * KIB),
    "apple-a15": (128 * KIB, 4096 * KIB, 1024 * KIB),
    "apple-a16": (128 * KIB, 4096 * KIB, 1024 * KIB),
}

# Bytes per second that estimates assume: for one core, from the cache where the previous operator
# left its data, and from beyond its L2; for all cores, from memory. The default is for current
# server CPUs, measured in networks: DRAM gives 33e9 on a Zen 4 and 20e9 on a Zen 3. It ranks the
# tuned convolutions of a Xeon with AMX as well as any other values that were tried. The values of a
# Zen 5 are those that rank its 564 tuned convolutions best. The values of boards are commonly
# measured ones: single-board computers have one narrow channel of memory.
DEFAULT_BANDWIDTHS: Final = (40e9, 32e9, 28e9)
BANDWIDTHS: Final[dict[str, tuple[float, float, float]]] = {
    "znver5": (40e9, 50e9, 40e9),
    "cortex-a53": (5e9, 2e9, 2e9),
    "cortex-a55": (8e9, 5e9, 4e9),
    "cortex-a57": (10e9, 6e9, 8e9),
    "cortex-a72": (10e9, 4e9, 4e9),
    "cortex-a73": (10e9, 5e9, 5e9),
    "cortex-a76": (25e9, 15e9, 10e9),
}

# The width, in bytes, of multiply-adds on CPUs that split their widest instructions in two.
FMA_BYTES: Final[dict[str, int]] = {
    "znver1": 16,
    "znver4": 32,
    "cortex-a53": 8,
    "cortex-a55": 8,
    "cortex-a57": 8,
    "cortex-a72": 8,
    "cortex-a73": 8,
}

# Multiplications of whole vectors of 16-bit integers that a core starts per cycle, where that is
# not 2. A Zen 1 has one such unit, of half a vector (measured).
INTEGER_MULTIPLIES: Final[dict[str, float]] = {
    "haswell": 1.0,
    "broadwell": 1.0,
    "znver1": 0.5,
    "znver2": 1.0,
}

# LLVM's name of the CPU, by names of instruction sets (the oldest CPU that has one), of machines,
# and of Apple's chips, which LLVM names after telephones.
ALIASES: Final[dict[str, str]] = {
    "sse": "nehalem",
    "avx2": "haswell",
    "avx512": "skylake-avx512",
    "avx512-vnni": "cascadelake",
    "amx": "sapphirerapids",
    "neon": "cortex-a72",
    "raspberry-pi-3": "cortex-a53",
    "rpi3": "cortex-a53",
    "raspberry-pi-zero-2": "cortex-a53",
    "raspberry-pi-4": "cortex-a72",
    "rpi4": "cortex-a72",
    "raspberry-pi-5": "cortex-a76",
    "rpi5": "cortex-a76",
    "jetson-nano": "cortex-a57",
    "jetson-orin": "cortex-a78ae",
    "rk3399": "cortex-a72",
    "rk3588": "cortex-a76",
    "graviton1": "cortex-a72",
    "graviton2": "neoverse-n1",
    "graviton3": "neoverse-v1",
    "graviton4": "neoverse-v2",
    "ampere-altra": "neoverse-n1",
    "ampere-one": "ampere1",
    "axion": "neoverse-v2",
    "cobalt-100": "neoverse-n2",
    "apple-m1": "apple-a14",
    "apple-m2": "apple-a15",
    "apple-m3": "apple-a16",
}
