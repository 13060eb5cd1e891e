/* The file NC_MODEL as a constant of the program: neocpu_embedded, up to neocpu_embedded_end. */
  .section .rodata
  .balign 65536
  .globl neocpu_embedded
  .globl neocpu_embedded_end
neocpu_embedded:
  .incbin NC_MODEL
neocpu_embedded_end:
  .section .note.GNU-stack, "", %progbits
