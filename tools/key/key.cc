// key.cc - `gradlane key`: makes keys of nodes, and gives new ones to running daemons (main thread)
#include "tools/key/key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "dataplane/node/key_file.h"
#include "tools/exit_status.h"

namespace gradlane {
namespace {

constexpr std::chrono::milliseconds kKeyPatience{10'000};

std::string text_of(const nlohmann::json& keys) {
  std::string text = fmt::format("key {} is the newest", keys.at("newest").get<std::string>());
  if (!keys.at("old").is_null()) {
    text += fmt::format(", {} is accepted for {:.0f} s", keys.at("old").get<std::string>(),
                        std::ceil(keys.at("old_for_s").get<double>()));
  }
  const auto waits = keys.at("waits_for").get<std::vector<unsigned>>();
  if (!waits.empty()) {
    text += fmt::format("; node{} {} {} not use {} yet", waits.size() == 1 ? "" : "s", fmt::join(waits, ", "),
                        waits.size() == 1 ? "does" : "do", keys.at("newest").get<std::string>());
  }
  return text;
}

int tell(const std::string& error, int status) {
  std::fprintf(stderr, "gradlane key: %s\n", error.c_str());
  return status;
}

int show(const KeyOptions& options, const nlohmann::json& document) {
  if (document.contains("keys") && document["keys"].contains("pairs") && !options.json) {
    fmt::print("node {}: a key for each other node, until the daemons end\n", document.at("node").get<unsigned>());
    return 0;
  }
  if (!document.contains("keys")) return tell("the daemon has no key: its security is none", kExitFailed);
  if (options.json) {
    fmt::print("{}\n", document.at("keys").dump());
  } else {
    fmt::print("node {}: {}\n", document.at("node").get<unsigned>(), text_of(document.at("keys")));
  }
  return 0;
}

int make(const KeyOptions& options) {
  const std::string id = key_name(make_key_file(options.file).id());
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"file", options.file}, {"id", id}}.dump());
  } else {
    fmt::print("{}: key {}\n", options.file, id);
  }
  return 0;
}

int rotate(const KeyOptions& options) {
  const FileDescriptor file(open(options.file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) throw SetupError(fmt::format("{}: {}", options.file, std::strerror(errno)));
  const std::string path = admin_path(options.place);
  nlohmann::json document;
  try {
    document = tell_admin(path, fmt::format("rotate {}", options.old_for), file.get(), kKeyPatience);
  } catch (const SetupError& error) {
    return tell(error.what(), kExitNoDaemon);
  }
  if (document.contains("error")) {
    return tell(
        fmt::format("the daemon on {} did not take {}: {}", path, options.file, document["error"].get<std::string>()),
        kExitFailed);
  }
  return show(options, document);
}

}  // namespace

int run_key(const KeyOptions& options) {
  if (options.command == KeyOptions::Command::kNew) return make(options);
  if (options.command == KeyOptions::Command::kRotate) return rotate(options);
  nlohmann::json document;
  try {
    document = ask_admin(admin_path(options.place), "stats", kKeyPatience);
  } catch (const SetupError& error) {
    return tell(error.what(), kExitNoDaemon);
  }
  return show(options, document);
}

}  // namespace gradlane
