/* neocpu.h: run models that neocpu compiled, from C and C++, without Python.
 *
 *     neocpu_model *model;
 *     if (neocpu_load("resnet50.so", NULL, &model) != NEOCPU_OK) {
 *       fprintf(stderr, "%s\n", neocpu_error());
 *       return 1;
 *     }
 *     neocpu_input image = {pixels, sizeof(float) * 3 * 224 * 224};
 *     neocpu_output scores = {logits, sizeof(float) * 1000, 0};
 *     neocpu_run(model, &image, 1, &scores, 1);
 *     neocpu_free(model);
 *
 * A process may hold any number of models, and any number of threads may call one: calls run one
 * after another, each on the thread that makes it and on the model's own; those of its streams
 * (neocpu_load_stream) at once. Nothing here ends the process.
 */
#ifndef NEOCPU_H_
#define NEOCPU_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NEOCPU_API __attribute__((visibility("default")))

/* The outcome of a call. The numbers are the exit codes of neocpu's command line. */
typedef enum neocpu_status {
  NEOCPU_OK = 0,
  NEOCPU_FAILURE = 1,  /* out of memory, or the operating system refused */
  NEOCPU_USAGE = 2,    /* a wrong argument: number or size of inputs or outputs, threads */
  NEOCPU_TARGET = 5,   /* compiled for another machine, or for instructions this one lacks */
  NEOCPU_ARTIFACT = 8, /* missing, damaged, foreign, or of other versions */
} neocpu_status;

/* A loaded model. */
typedef struct neocpu_model neocpu_model;

/* Threads that models share; each has its own unless it is given some. */
typedef struct nc_pool neocpu_pool;

/* A call that is made while its caller goes on. */
typedef struct neocpu_job neocpu_job;

/* A value of neocpu_options.threads. */
#define NEOCPU_PERFORMANCE (-1000000)

/* Options of loading; all zeros, or a null pointer, are the defaults. */
typedef struct neocpu_options {
  /* Threads of a call, at most as many as there are CPUs that the calling thread may run on; 0: the
   * CPUs this process may use (affinity and control-group quota). NEOCPU_PERFORMANCE: of these, the
   * CPUs of performance cores, where a machine has slower ones too, and the model's own threads stay
   * on them. The calling thread is the caller's to place. */
  int threads;
  /* Weights are checked in the background, and no kernel runs before they were found undamaged.
   * Nonzero: trust them. Code and header are always checked before any of it runs. */
  int trust_weights;
  /* Nonzero: copy the weights to huge pages of this process. They stream a few per cent faster, but
   * loading takes longer and no other process shares them. */
  int huge_pages;
  /* Null: threads of the model's own, which `threads` counts. Else these: calls of all models that
   * share them take turns, in order. */
  neocpu_pool *pool;
  /* Nonzero: each of the model's own threads stays on one CPU. For machines that run nothing else: a
   * busy neighbour on that CPU holds it up. The calling thread is the caller's to pin. */
  int pin;
} neocpu_options;

/* The form of pictures in an input that is compiled for them: bytes, of the spec's four extents. */
typedef struct neocpu_picture {
  const char *layout;  /* "nhwc" or "nchw" */
  const char *colours; /* "rgb", "bgr" or "gray" */
  const char *fit;     /* the way other sizes are resized: "stretch", "crop", "letterbox" */
} neocpu_picture;

/* One input or output. */
typedef struct neocpu_spec {
  const char *name;     /* in UTF-8 */
  const char *dtype;    /* as numpy calls it: float32, int64, …; and bfloat16 */
  const int64_t *shape; /* `rank` extents; elements lie in C order, without gaps */
  size_t rank;
  size_t bytes; /* of the whole tensor */
  int bounded;  /* nonzero: only the run decides how many rows count, at most shape[0] */
  const neocpu_picture *picture; /* null unless the input is compiled for pictures; what a later
                                    version wrote may have other words than these */
} neocpu_spec;

/* Inputs and outputs of one call. A model for a set of shapes has several signatures, all of inputs
 * and outputs of the same names and types. */
typedef struct neocpu_signature {
  const neocpu_spec *inputs;
  const neocpu_spec *outputs;
} neocpu_signature;

/* An extent of inputs that each call chooses: `least`, `least + step`, up to `most`. */
typedef struct neocpu_size {
  const char *name;
  int64_t least, most, step;
  int64_t typical;    /* the one that the model's plan is made for */
  size_t input, axis; /* an input, and the axis of it whose extent this is */
} neocpu_size;

/* Facts about a model, valid until it is freed. */
typedef struct neocpu_description {
  const char *name;
  const char *target; /* the CPU it was compiled for, such as "llvm -mcpu=znver4" */
  int threads;        /* of a call */
  const neocpu_spec *inputs; /* of the first signature, and so the outputs */
  size_t input_count;
  const neocpu_spec *outputs;
  size_t output_count;
  const neocpu_signature *signatures; /* of most models there is one */
  size_t signature_count;
  uint64_t packing; /* nanoseconds that packing weights took, of a model that has some packed when it
                       is loaded; streams share them */
  const neocpu_size *sizes; /* that calls choose: inputs and outputs above are of the typical ones */
  size_t size_count;        /* of most models 0: all shapes are fixed */
} neocpu_description;

/* An input's elements. Data that start on a multiple of 64 bytes are read where they lie, others
 * are copied first. */
typedef struct neocpu_input {
  const void *data;
  size_t bytes; /* exactly the specification's */
} neocpu_input;

/* The memory for an output's elements. If it starts on a multiple of 64 bytes, they are computed there,
 * unless the model goes on with them in another shape; else they are copied there. */
typedef struct neocpu_output {
  void *data;
  size_t bytes; /* room there, at least the specification's */
  size_t rows;  /* written by neocpu_run: extent of the first axis, which counts if bounded */
} neocpu_output;

/* Something that took time: a run, a call of a kernel in it, or a task of one of the parallel loops
 * that the kernel has. Of a run, call, loop and task are -1; of a call, loop and task. Calls that are
 * launched together begin at once. */
typedef struct neocpu_event {
  uint64_t begin, end; /* nanoseconds of CLOCK_MONOTONIC */
  const char *kernel;  /* its name, valid until the model is freed; null of a run */
  int32_t run;         /* since the trace was started */
  int32_t call;        /* among the "calls" of neocpu_metadata: those of all its "plans" in turn */
  int32_t loop;        /* among those of the call */
  int32_t task;        /* part of the loop */
  int32_t thread;      /* number of the thread; 0 is the one that called neocpu_run */
} neocpu_event;

/* One of the artifacts that a file holds. */
typedef struct neocpu_variant {
  const char *name;      /* in a fat file; empty of a file that is none */
  uint64_t offset, size; /* its place in the file, bytes */
  uint64_t code_size;    /* the part before its weights, bytes */
  uint64_t weights_size;
  const char *metadata; /* as neocpu_metadata has it */
  const char *obstacle; /* why this machine cannot run it; null if it can */
} neocpu_variant;

/* A file that is not loaded, for any machine; everything was checked but the weights. */
typedef struct neocpu_contents {
  int file; /* a descriptor of the very file that was checked */
  const neocpu_variant *variants;
  size_t count;
  size_t loadable; /* the one that neocpu_load takes; `count` if this machine can run none */
} neocpu_contents;

/* Load a compiled model. On failure *model is null. */
NEOCPU_API neocpu_status neocpu_load(const char *path, const neocpu_options *options,
                                     neocpu_model **model);

/* The same of a file's content in memory, which must stay as it is until the model is freed. Memory
 * that starts on a multiple of 128 bytes is used as it is, of other memory the weights are copied. */
NEOCPU_API neocpu_status neocpu_open_memory(const void *data, size_t size,
                                            const neocpu_options *options, neocpu_model **model);

/* Load another stream of a model: the two share file and weights and the check of these, and each has
 * its threads and its memory between kernels, so that calls of both are made at once. It is a model
 * like any other, and either may be freed first. Of the options, `threads`, `pin` and `pool` count.
 */
NEOCPU_API neocpu_status neocpu_load_stream(neocpu_model *model, const neocpu_options *options,
                                            neocpu_model **stream);

/* Make threads for models to share: as many as neocpu_options.threads says, pinned or not. */
NEOCPU_API neocpu_status neocpu_pool_start(int threads, int pin, neocpu_pool **pool);

/* The number of a pool's threads, the calling one of each run included. */
NEOCPU_API int neocpu_pool_threads(const neocpu_pool *pool);

/* Wait until the runs that have begun are done. */
NEOCPU_API void neocpu_pool_wait(neocpu_pool *pool);

/* Free a pool; null is ignored. Models that use it keep it until they are freed. */
NEOCPU_API void neocpu_pool_free(neocpu_pool *pool);

/* Name, target, inputs and outputs, both in graph order; null of a null pointer. */
NEOCPU_API const neocpu_description *neocpu_describe(const neocpu_model *model);

/* All that the file says of itself, its plan included; what its runs told is the member "outcome"
 * (docs/artifact.md). An object of JSON in UTF-8; null of a null pointer. It is valid until the model
 * is freed. */
NEOCPU_API const char *neocpu_metadata(const neocpu_model *model);

/* Wait until the weights are checked, unless they are trusted; return what was found. */
NEOCPU_API neocpu_status neocpu_verify(neocpu_model *model);

/* Run the model; inputs and outputs in graph order. Outputs may overlap inputs, but not each other.
 * After a failure their contents are unspecified. Of a model for a set of shapes, the inputs' bytes
 * tell which of its signatures it is; of one whose calls choose sizes, they are the typical ones. */
NEOCPU_API neocpu_status neocpu_run(neocpu_model *model, const neocpu_input *inputs,
                                    size_t input_count, neocpu_output *outputs,
                                    size_t output_count);

/* The same for one signature, by its position in the description: where several have inputs of as
 * many bytes. */
NEOCPU_API neocpu_status neocpu_run_signature(neocpu_model *model, size_t signature,
                                              const neocpu_input *inputs, size_t input_count,
                                              neocpu_output *outputs, size_t output_count);

/* Write the extents of all inputs, one after another, and then of all outputs, for some sizes: as many
 * as the description has. What it writes is as long as the ranks of all specifications together. */
NEOCPU_API neocpu_status neocpu_extents(const neocpu_model *model, const int64_t *sizes,
                                        int64_t *extents);

/* Run the model for sizes of the inputs. The first call of a size takes some tens of microseconds
 * more; those of the last 16 are kept ready. */
NEOCPU_API neocpu_status neocpu_run_sizes(neocpu_model *model, const int64_t *sizes,
                                          const neocpu_input *inputs, size_t input_count,
                                          neocpu_output *outputs, size_t output_count);

/* Queue a call as neocpu_run makes it, and return at once. Calls of one model that were submitted
 * are made in order. The two arrays, and what they lead to, must stay until the job is waited for or
 * cancelled. */
NEOCPU_API neocpu_status neocpu_submit(neocpu_model *model, const neocpu_input *inputs,
                                       size_t input_count, neocpu_output *outputs,
                                       size_t output_count, neocpu_job **job);

/* The same for one signature, as neocpu_run_signature. */
NEOCPU_API neocpu_status neocpu_submit_signature(neocpu_model *model, size_t signature,
                                                 const neocpu_input *inputs, size_t input_count,
                                                 neocpu_output *outputs, size_t output_count,
                                                 neocpu_job **job);

/* The same for sizes, as neocpu_run_sizes; they are copied. What is wrong with the bytes of inputs and
 * outputs is told when the job is waited for. */
NEOCPU_API neocpu_status neocpu_submit_sizes(neocpu_model *model, const int64_t *sizes,
                                             const neocpu_input *inputs, size_t input_count,
                                             neocpu_output *outputs, size_t output_count,
                                             neocpu_job **job);

/* Wait for a job and free it; return what the call came to. */
NEOCPU_API neocpu_status neocpu_wait(neocpu_job *job);

/* Cancel a job that has not begun, free it, and return 1; else return 0: it is to be waited for. */
NEOCPU_API int neocpu_cancel(neocpu_job *job);

/* Note from now on when each run, call and task takes place: anew, if that was done already. It
 * takes about a hundred nanoseconds for each. Runs in progress are waited for. */
NEOCPU_API neocpu_status neocpu_trace_start(neocpu_model *model);

/* Note nothing more, and write where the events since the start are and how many, in the order in
 * which they began. They are valid until the next start, or until the model is freed. */
NEOCPU_API neocpu_status neocpu_trace_stop(neocpu_model *model, const neocpu_event **events,
                                           size_t *count);

/* Free a model that no other thread is using, once the jobs it still has are done; null is ignored.
 * Every job is to be waited for, or cancelled, before. */
NEOCPU_API void neocpu_free(neocpu_model *model);

/* Look into a file without loading it. On failure *contents is null. */
NEOCPU_API neocpu_status neocpu_inspect(const char *path, neocpu_contents **contents);

/* Check some megabytes more of a variant's weights, and write how many bytes of them are checked by
 * now. Damage may be found only at the last call: when that is `weights_size`. */
NEOCPU_API neocpu_status neocpu_check_weights(neocpu_contents *contents, size_t variant,
                                              uint64_t *checked);

/* Close a file; null is ignored. */
NEOCPU_API void neocpu_contents_free(neocpu_contents *contents);

/* The message of the calling thread's last failed call: one line, valid until its next one. */
NEOCPU_API const char *neocpu_error(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NEOCPU_H_ */
