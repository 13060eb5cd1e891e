/* A plugin for QEMU's user mode: how often each block of guest code is executed between two marks.
 *
 * A guest marks by getpgid(MARK): the first call starts the count, the second writes it to the file
 * named by the argument out=, a line per block: its address and executions, in decimal, and its
 * machine code, in hexadecimal. The prototypes are those of QEMU's plugin interface, version 1,
 * whose header no distribution ships.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK 0x6e656f63
#define GETPGID 155 /* on AArch64 */
#define INLINE_ADD_U64 0

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_syscall_cb(
    plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t, uint64_t, uint64_t, uint64_t));

struct block {
    struct block *next;
    uint64_t address, executions;
    size_t size;
    uint32_t code[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static const char *path;
static int counting;

static void on_translation(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    size_t size = qemu_plugin_tb_n_insns(tb);
    struct block *block = malloc(sizeof *block + size * sizeof block->code[0]);
    if (!block)
        abort();
    block->address = qemu_plugin_tb_vaddr(tb);
    block->executions = 0;
    block->size = size;
    for (size_t i = 0; i < size; i++)
        memcpy(&block->code[i], qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i)), 4);
    pthread_mutex_lock(&lock);
    block->next = blocks;
    blocks = block;
    pthread_mutex_unlock(&lock);
    qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &block->executions, 1);
}

static void write_counts(void)
{
    FILE *file = fopen(path, "w");
    if (!file)
        abort();
    for (const struct block *block = blocks; block; block = block->next) {
        if (!block->executions)
            continue;
        fprintf(file, "%" PRIu64 " %" PRIu64 " ", block->address, block->executions);
        for (size_t i = 0; i < block->size; i++)
            fprintf(file, "%08" PRIx32, block->code[i]);
        fputc('\n', file);
    }
    if (fclose(file))
        abort();
}

static void on_syscall(plugin_id id, unsigned vcpu, int64_t number, uint64_t argument, uint64_t b,
                       uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    (void)id, (void)vcpu, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number != GETPGID || argument != MARK)
        return;
    pthread_mutex_lock(&lock);
    if (counting)
        write_counts();
    for (struct block *block = blocks; block; block = block->next)
        block->executions = 0;
    counting = !counting;
    pthread_mutex_unlock(&lock);
}

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info,
                                                               int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++)
        if (!strncmp(argv[i], "out=", 4))
            path = strdup(argv[i] + 4);
    if (!path) {
        fprintf(stderr, "qemu_counter: out=FILE is missing\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    return 0;
}
