/* SPDX-License-Identifier: MIT
 *
 * A correlator's gains, written by the CPU and read by a kernel, in C and without GStreamer: what MeerKAT's correlator
 * does with vkgdr. For each of so many integrations the CPU stores new gains straight into GPU memory, the kernel
 * multiplies the voltages by them, and every product is compared with the CPU's own.
 *
 *     gpumap-gains KERNEL RESULT [INTEGRATIONS]
 *
 * KERNEL: gains.cu or gains.comp; without the ending, as the device has it. RESULT: the file for the last products. */
#include <gpumap/gpumap.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { antennas = 16, channels = 1024, times = 16, gains = antennas * channels };

struct complex_float {
  float re, im;
};
struct complex_int8 {
  int8_t re, im;
};

static void check(gpumap_status status, const char* what) {
  if (status == GPUMAP_OK) return;
  fprintf(stderr, "gpumap-gains: %s: %s: %s\n", what, gpumap_status_name(status), gpumap_last_error());
  exit(1);
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static int by_size(const void* one, const void* other) {
  const double a = *(const double*)one, b = *(const double*)other;
  return a < b ? -1 : a > b;
}

/* Phases that turn with the integration, a little for each channel and antenna: delays that are tracked. */
static void write_gains(struct complex_float* to, int integration) {
  int at;
  for (at = 0; at < gains; ++at) {
    const int antenna = at / channels, channel = at % channels;
    const float phase = 0.01F * (float)integration * (float)(antenna + 1) + 0.001F * (float)channel;
    to[at].re = 0.5F * cosf(phase);
    to[at].im = 0.5F * sinf(phase);
  }
}

static void check_products(const struct complex_float* products, const struct complex_float* gain,
                           const struct complex_int8* voltage, int integration) {
  int at;
  for (at = 0; at < gains * times; ++at) {
    const struct complex_float g = gain[at / times];
    const struct complex_int8 v = voltage[at];
    const float re = g.re * (float)v.re - g.im * (float)v.im, im = g.re * (float)v.im + g.im * (float)v.re;
    if (fabsf(products[at].re - re) <= 1e-4F && fabsf(products[at].im - im) <= 1e-4F) continue;
    fprintf(stderr, "gpumap-gains: integration %d, product %d is (%g, %g) and should be (%g, %g)\n", integration, at,
            (double)products[at].re, (double)products[at].im, (double)re, (double)im);
    exit(1);
  }
}

int main(int count, char** arguments) {
  static struct complex_float gain[gains];
  static struct complex_int8 voltage[gains * times];
  const int integrations = count > 3 ? atoi(arguments[3]) : 100;
  double *written, *applied;
  char params[64];
  gpumap_device device;
  gpumap_device_info on = GPUMAP_INIT(gpumap_device_info);
  gpumap_memory memory;
  gpumap_kernel kernel;
  gpumap_kernel_options of_kernel = GPUMAP_INIT(gpumap_kernel_options);
  gpumap_run_options run = GPUMAP_INIT(gpumap_run_options);
  FILE* result;
  int integration, at;
  if (count < 3 || integrations < 1) {
    fprintf(stderr, "gpumap-gains KERNEL RESULT [INTEGRATIONS]\n");
    return 2;
  }
  written = malloc(sizeof *written * (size_t)integrations);
  applied = malloc(sizeof *applied * (size_t)integrations);
  if (written == NULL || applied == NULL) {
    fprintf(stderr, "gpumap-gains: no memory for the times of %d integrations\n", integrations);
    exit(1);
  }
  for (at = 0; at < gains * times; ++at) {
    voltage[at].re = (int8_t)(rand() % 255 - 127);
    voltage[at].im = (int8_t)(rand() % 255 - 127);
  }

  check(gpumap_device_open("auto", 0, &device), "opening a device");
  check(gpumap_device_get_info(device, &on), "asking the device");
  check(gpumap_memory_alloc(device, sizeof gain + sizeof voltage, NULL, &memory), "allocating");
  /* NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling): glibc has no other */
  snprintf(params, sizeof params, "gains=%d,times=%d", gains, times);
  of_kernel.file = arguments[1];
  of_kernel.params = params;
  check(gpumap_kernel_open(device, &of_kernel, &kernel), "loading the kernel");
  run.memory = memory;
  run.to_host = 1; /* for the comparison: a correlator leaves them on the GPU */

  result = fopen(arguments[2], "wb");
  if (result == NULL) {
    fprintf(stderr, "gpumap-gains: cannot write %s\n", arguments[2]);
    exit(1);
  }
  check(gpumap_memory_write(memory, sizeof gain, voltage, sizeof voltage), "writing the voltages");
  for (integration = 0; integration < integrations; ++integration) {
    gpumap_memory products = NULL;
    double began;
    write_gains(gain, integration);
    began = now_us();
    /* Stores into GPU memory: there is no copy and no call of a driver between them and the kernel. */
    /* NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling): likewise */
    memcpy(gpumap_memory_host(memory), gain, sizeof gain);
    check(gpumap_memory_flush(memory, 0, sizeof gain), "flushing");
    written[integration] = now_us() - began;
    check(gpumap_kernel_run(kernel, &run, &products), "running the kernel");
    applied[integration] = now_us() - began - written[integration];
    check_products(gpumap_memory_host(products), gain, voltage, integration);
    if (integration == integrations - 1) fwrite(gpumap_memory_host(products), 1, gpumap_memory_bytes(products), result);
    check(gpumap_memory_free(products), "giving the products back");
  }
  if (fclose(result) != 0) return 1;
  qsort(written, (size_t)integrations, sizeof *written, by_size);
  qsort(applied, (size_t)integrations, sizeof *applied, by_size);
  printf("%s: %d antennas x %d channels, %d integrations, every product as it should be\n", on.name, antennas, channels,
         integrations);
  printf("gains written in %.1f us, products seen by the CPU %.1f us later (medians)\n", written[integrations / 2],
         applied[integrations / 2]);
  check(gpumap_kernel_close(kernel), "closing the kernel");
  check(gpumap_memory_free(memory), "freeing");
  check(gpumap_device_close(device), "closing the device");
  free(written);
  free(applied);
  return 0;
}
