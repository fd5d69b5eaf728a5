/* SPDX-License-Identifier: MIT
 *
 * The other process of the tests of rings between processes in C: serves a ring at PATH, publishes COUNT frames of 5000
 * bytes, the bytes of each its number, and then waits to be killed. c_link_peer PATH COUNT */
#include <gpumap/gpumap.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void check(gpumap_status status) {
  if (status == GPUMAP_OK) return;
  fprintf(stderr, "c_link_peer: %s: %s\n", gpumap_status_name(status), gpumap_last_error());
  exit(1);
}

int main(int count, char** arguments) {
  gpumap_device device = NULL;
  gpumap_ring ring = NULL;
  gpumap_server server = NULL;
  gpumap_ring_options options = GPUMAP_INIT(gpumap_ring_options);
  long frame;
  static unsigned char bytes[5000];
  if (count != 3) return 2;
  alarm(120);
  options.slot_bytes = sizeof bytes;
  options.transport = GPUMAP_TRANSPORT_BAR;
  check(gpumap_device_open(NULL, 0, &device));
  check(gpumap_ring_create(device, &options, &ring));
  check(gpumap_ring_serve(ring, arguments[1], NULL, &server));
  check(gpumap_server_wait_for_client(server, GPUMAP_FOREVER));
  for (frame = 0; frame < atol(arguments[2]); ++frame) {
    gpumap_slot slot = NULL;
    size_t at;
    for (at = 0; at < sizeof bytes; ++at) bytes[at] = (unsigned char)frame;
    check(gpumap_ring_acquire(ring, GPUMAP_WHEN_FULL_WAIT, GPUMAP_FOREVER, &slot));
    check(gpumap_slot_write(slot, 0, bytes, sizeof bytes));
    check(gpumap_slot_publish(slot, NULL, NULL, 0));
  }
  for (;;) pause();
}
