"""The CPU features of LLVM on which generated code cannot depend.

LLVM describes a CPU by instruction sets, fast instructions and facilities for the system. All but
those listed here may occur in generated code, so the CPU must have them. One that a later LLVM adds
counts as missing on every host until somebody lists it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_X86_BASELINE: Final = frozenset("64bit 64bit-mode cmov cx8 fxsr mmx nopl sse sse2 x87".split())
"""Features that every x86-64 CPU has."""

_X86_BY_NAME: Final = frozenset(
    """
    adx aes amx-avx512 amx-complex amx-fp16 amx-fp8 amx-movrs amx-tf32
    avx512vp2intersect cldemote clflushopt clwb clzero crc32 enqcmd fsgsbase hreset invpcid kl lwp
    movdir64b movdiri movrs mwaitx pclmul pconfig pku prefetchi prfchw ptwrite rdpid rdpru rdrnd
    rdseed serialize sha sha512 shstk sm3 sm4 tsxldtrk uintr usermsr vaes vpclmulqdq waitpkg
    wbnoinvd widekl xsave xsavec xsaveopt xsaves
    """.split()
)
"""Instructions that LLVM emits only where code names them, which our code never does. Hypervisors
hide many of them, and CPUs of one kind differ in them: code must not demand them.
"""

_X86_TUNING: Final = frozenset(
    """
    allow-light-256-bit branch-hint branchfusion ermsb false-deps-getmant false-deps-lzcnt-tzcnt
    false-deps-mulc false-deps-mullq false-deps-perm false-deps-popcnt false-deps-range
    fast-11bytenop fast-15bytenop fast-7bytenop fast-bextr fast-dpwssd fast-gather fast-hops
    fast-imm16 fast-lzcnt fast-movbe fast-scalar-fsqrt fast-scalar-shift-masks fast-shld-rotate
    fast-variable-crosslane-shuffle fast-variable-perlane-shuffle fast-vector-fsqrt
    fast-vector-shift-masks faster-shift-than-shuffle fsrm idivl-to-divb idivq-to-divl lea-sp
    lea-uses-ag macrofusion no-bypass-delay no-bypass-delay-blend no-bypass-delay-mov
    no-bypass-delay-shuffle pad-short-functions prefer-256-bit prefer-mask-registers
    prefer-movmsk-over-vtest sbb-dep-breaking slow-3ops-lea slow-incdec slow-lea slow-pmaddwd
    slow-pmulld slow-pmullq slow-shld slow-two-mem-ops slow-unaligned-mem-16 slow-unaligned-mem-32
    tuning-fast-imm-vector-shift use-glm-div-sqrt-costs use-slm-arith-costs vzeroupper
    """.split()
)

_ARM_BASELINE: Final = frozenset("fp-armv8 v8a v8r".split())
"""Features of every AArch64 CPU that runs Linux."""

_ARM_VERSIONS: Final = frozenset(
    "v8.1a v8.2a v8.3a v8.4a v8.5a v8.6a v8.7a v8.8a v9a v9.1a v9.2a v9.3a".split()
)
"""Versions of the architecture; each of their instruction sets also has a name of its own."""

_ARM_BY_NAME: Final = frozenset(
    """
    CONTEXTIDREL2 aes am amvs brbe bti ccdp ccidx ccpp chk clrbhb crc dit ecv el2vmsa el3 ete fgt
    fpac hcx lor ls64 mec mpam mte nmi nv pan pan-rwv pauth perfmon predres rand ras rme sb sel2
    sha2 sm4 sme sme-b16b16 sme-f16f16 sme-f64f64 sme-i16i64 sme2 sme2p1 spe spe-eef specres2
    specrestrict ssbs sve-aes sve-sm4 tlb-rmi tracev8.4 trbe uaops vh wfxt xs
    """.split()
)
"""Instructions and registers, mostly of the operating system, that LLVM uses only where code names
them, as ours never does; a Raspberry Pi 4 lacks the cryptography that its Cortex-A72 has.
"""

_ARM_TUNING: Final = frozenset(
    """
    addr-lsl-slow-14 aggressive-fma aggressive-interleaving alternate-sextload-cvt-f32-pattern
    alu-lsl-fast arith-bcc-fusion arith-cbz-fusion avoid-ldapur balance-fp-ops cmp-bcc-fusion
    disable-latency-sched-heuristic disable-maximize-scalable-bandwidth
    disable-unpredicated-ld-st-lower enable-select-opt exynos-cheap-as-move force-32bit-jump-tables
    fuse-address fuse-addsub-2reg-const1 fuse-adrp-add fuse-aes fuse-arith-logic fuse-crypto-eor
    fuse-csel fuse-cset fuse-literals ldp-aligned-only max-interleave-factor-4 no-sve-fp-ld1r
    no-zcz-fpr64 predictable-select-expensive slow-strqro-store store-pair-suppress stp-aligned-only
    strict-align use-fixed-over-scalable-if-equal-cost use-postra-scheduler use-wzr-to-vec-move
    zcm-fpr128 zcm-gpr64 zcz-fp-workaround zcz-fpr128 zcz-gpr32 zcz-gpr64
    """.split()
)

_ARM_MODELS: Final = frozenset(
    """
    a320 a35 a510 a520 a520ae a53 a55 a57 a64fx a65 a710 a715 a72 a720 a720ae a73 a75 a76 a77 a78
    a78ae a78c ampere1 ampere1a ampere1b ampere1c apple-a10 apple-a11 apple-a12 apple-a13 apple-a14
    apple-a15 apple-a16 apple-a17 apple-a7 apple-m4 apple-m5 c1-nano c1-premium c1-pro c1-ultra
    carmel cortex-a725 cortex-r82 cortex-r82ae cortex-x1 cortex-x2 cortex-x3 cortex-x4 cortex-x925
    exynosm3 exynosm4 falkor fujitsu-monaka kryo neoverse512tvb neoversee1 neoversen1 neoversen2
    neoversen3 neoversev1 neoversev2 neoversev3 neoversev3AE olympus oryon-1 saphira thunderx
    thunderx2t99 thunderx3t110 thunderxt81 thunderxt83 thunderxt88 tsv110
    """.split()
)
"""Names of CPUs, which only select tuning."""

BY_NAME: Final[Mapping[str, frozenset[str]]] = {"x86_64": _X86_BY_NAME, "aarch64": _ARM_BY_NAME}
"""The features that LLVM uses only where code names them, by machine."""

_HARMLESS: Final = {
    "x86_64": _X86_BASELINE | _X86_BY_NAME | _X86_TUNING,
    "aarch64": _ARM_BASELINE | _ARM_VERSIONS | _ARM_BY_NAME | _ARM_TUNING | _ARM_MODELS,
}


def demanded(machine: str, features: Iterable[str]) -> tuple[str, ...]:
    """Return those of a CPU's ``features`` that its code may depend on, sorted."""
    return tuple(sorted(set(features) - _HARMLESS[machine]))
