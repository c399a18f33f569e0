// fake_daemon_main.cc - runs a command with a fake daemon to talk to: fake_daemon LANES COMMAND...
//
// The command gets GRADLANE_SOCKET, RANK, WORLD_SIZE and GRADLANE_FAKE_PID in its environment. After SIGUSR1 to the
// process GRADLANE_FAKE_PID, the daemon says goodbye. After SIGUSR2, it ignores submissions until the next SIGUSR2.
// When a signal is handled, a byte comes through the file descriptor GRADLANE_FAKE_ANSWERS. Returns the command's exit
// status.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/client/fake_daemon.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: fake_daemon LANES COMMAND...\n", stderr);
    return 2;
  }
  // Signals are blocked before there are threads. sigtimedwait() below takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGUSR1);
  sigaddset(&signals, SIGUSR2);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &signals, &before);

  gradlane::FakeDaemon daemon({.lanes = static_cast<uint32_t>(std::atoi(argv[1]))});
  setenv("GRADLANE_SOCKET", daemon.path().c_str(), 1);
  setenv("GRADLANE_FAKE_PID", std::to_string(getpid()).c_str(), 1);
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  int answers[2];
  if (pipe2(answers, O_CLOEXEC) != 0) {
    std::perror("pipe");
    return 1;
  }
  setenv("GRADLANE_FAKE_ANSWERS", std::to_string(answers[0]).c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    // The command inherits the reading end only. So its reads end when this process ends.
    (void)fcntl(answers[0], F_SETFD, 0);
    execvp(argv[2], argv + 2);
    std::perror(argv[2]);
    _exit(127);
  }
  bool paused = false;
  for (;;) {
    const timespec beat = {0, 500'000'000};
    const int signal = sigtimedwait(&signals, nullptr, &beat);
    daemon.beat();
    if (signal == SIGUSR1) daemon.goodbye("told to by SIGUSR1");
    if (signal == SIGUSR2) daemon.pause(paused = !paused);
    if ((signal == SIGUSR1 || signal == SIGUSR2) && write(answers[1], "", 1) != 1) return 1;
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
}
