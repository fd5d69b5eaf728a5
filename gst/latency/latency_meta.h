/* SPDX-License-Identifier: MIT */
#ifndef GPUMAP_LATENCY_META_H
#define GPUMAP_LATENCY_META_H

#include <gst/gst.h>

G_BEGIN_DECLS

/**
 * GpumapLatencyStamp: points on the way of a frame, in their order.
 */
typedef enum {
  GPUMAP_LATENCY_ACQUIRED,       /* upstream got a slot for it */
  GPUMAP_LATENCY_FIRST_STORE,    /* the slot was mapped, or the copy of upstream's own memory began */
  GPUMAP_LATENCY_LAST_STORE,     /* it was unmapped, or the copy ended */
  GPUMAP_LATENCY_PUBLISHED,      /* gpumapsink queued it */
  GPUMAP_LATENCY_RECEIVED,       /* gpumapsrc took it */
  GPUMAP_LATENCY_LAUNCHED,       /* its first kernel was about to be handed to the driver */
  GPUMAP_LATENCY_KERNEL_STARTED, /* on the GPU: 0 here, as it is known only later; `stats` and the tracer have it */
  GPUMAP_LATENCY_KERNEL_ENDED,   /* the same */
  GPUMAP_LATENCY_VISIBLE,        /* the CPU saw the kernel's result */
  GPUMAP_LATENCY_RELEASED,       /* the slot was given back: 0 here */
  GPUMAP_LATENCY_N_STAMPS
} GpumapLatencyStamp;

/**
 * GpumapLatencyMeta: the way of the frame of which a buffer was made, on buffers from a gpumapsrc whose gpumapsink has
 * stamps=true, and on what gpumapkernel makes of them. Plain data, filled in when the buffer was handed on.
 *
 * Times in ns on CLOCK_MONOTONIC; 0: not known. Read it with
 *   (GpumapLatencyMeta *) gst_buffer_get_meta (buffer, g_type_from_name (GPUMAP_LATENCY_META_API))
 * and only where that type exists: it is registered with the plugin's elements.
 */
typedef struct {
  GstMeta meta;
  guint64 sequence; /* of the frame on its channel */
  gint64 at_ns[GPUMAP_LATENCY_N_STAMPS];
  gint64 due_ns;      /* when its time came on the pipeline's clock, where that is CLOCK_MONOTONIC */
  gint64 captured_ns; /* what upstream's GstReferenceTimestampMeta says, where that is a clock that can be compared */
  /*< private >*/
  gpointer trace[2];
} GpumapLatencyMeta;

#define GPUMAP_LATENCY_META_API "GpumapLatencyMetaAPI"

G_END_DECLS

#endif /* GPUMAP_LATENCY_META_H */
