// poll_thread.cc - set-up of a polling thread before its first round (control thread, then that thread)
#include "dataplane/poll/poll_thread.h"

#include <pthread.h>
#include <rte_lcore.h>
#include <sched.h>

#include <string>

#include "base/error.h"

namespace gradlane {

void check_core(int core, const char* setting) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  if (core >= CPU_SETSIZE || (core >= 0 && !CPU_ISSET(core, &allowed))) {
    throw SetupError(std::string(setting) + ": this process may not run on CPU " + std::to_string(core) +
                     "; `taskset -pc $$` lists the allowed CPUs");
  }
}

PollThread::PollThread(int core) noexcept {
  if (core >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  }
  registered_ = rte_thread_register() == 0;
}

PollThread::~PollThread() {
  if (registered_) rte_thread_unregister();
}

}  // namespace gradlane
