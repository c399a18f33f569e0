// floats.c - floats over TCP, in guests: an ordinary program, which knows nothing of gradlane
//
//   floats receive PORT              one connection, until it ends; prints "COUNT floats, worst ERROR"
//   floats send IP PORT TOS MIB      TOS: a number such as 0x28
//
// Both sides make the same floats, so the receiver knows how far off each of them is.
#include <arpa/inet.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kPiece = 4096 };

static uint32_t state = 1;

// Returns a float between -0.1 and 0.1, with any mantissa.
static float next(void) {
  state = state * 1664525U + 1013904223U;
  return ((float)(state >> 8) / (float)(1 << 24) - 0.5F) / 5.0F;
}

static int fail(const char* what) {
  perror(what);
  return 1;
}

static int receive(uint16_t port) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
  static unsigned char bytes[sizeof(float) * kPiece];
  const int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(listener, (struct sockaddr*)&here, sizeof here) != 0 || listen(listener, 1) != 0) return fail("listen");
  const int connection = accept(listener, NULL, NULL);
  size_t have = 0, count = 0;
  double worst = 0;
  for (;;) {
    const ssize_t got = read(connection, bytes + have, sizeof bytes - have);
    if (got < 0) return fail("read");
    if (got == 0) break;
    have += (size_t)got;
    const size_t whole = have / sizeof(float);
    for (size_t i = 0; i < whole; ++i, ++count) {
      float value;
      memcpy(&value, bytes + i * sizeof value, sizeof value);
      const double off = fabs((double)value - (double)next());
      if (!(off <= worst)) worst = off;
    }
    have -= whole * sizeof(float);
    memmove(bytes, bytes + whole * sizeof(float), have);
  }
  printf("%zu floats, worst %.6g\n", count, worst);
  return 0;
}

static int transmit(const char* ip, uint16_t port, int tos, size_t mib) {
  struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(port)};
  static float floats[kPiece];
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  inet_pton(AF_INET, ip, &there.sin_addr);
  if (setsockopt(connection, IPPROTO_IP, IP_TOS, &tos, sizeof tos) != 0) return fail("IP_TOS");
  if (connect(connection, (struct sockaddr*)&there, sizeof there) != 0) return fail("connect");
  for (size_t piece = 0; piece < mib * (1 << 20) / sizeof floats; ++piece) {
    for (size_t i = 0; i < kPiece; ++i) floats[i] = next();
    const char* at = (const char*)floats;
    for (size_t left = sizeof floats; left > 0;) {
      const ssize_t sent = write(connection, at, left);
      if (sent <= 0) return fail("write");
      at += sent;
      left -= (size_t)sent;
    }
  }
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "receive") == 0) return receive((uint16_t)atoi(argv[2]));
  if (argc == 6 && strcmp(argv[1], "send") == 0) {
    return transmit(argv[2], (uint16_t)atoi(argv[3]), (int)strtol(argv[4], NULL, 0), (size_t)atoi(argv[5]));
  }
  fprintf(stderr, "usage: floats receive PORT | floats send IP PORT TOS MIB\n");
  return 2;
}
