// admin_socket.cc - requests of one line, and documents as answers (control thread only)
#include "dataplane/watch/admin_socket.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

namespace gradlane {
namespace {

using Sender = ClientServer::Sender;

// Adds a newline to the document.
ServerAnswer as_line(ServerAnswer answer) {
  if (!answer.later) return {std::move(answer.text) + "\n", {}};
  return {"", [later = std::move(answer.later)]() -> std::optional<std::string> {
            std::optional<std::string> text = later();
            if (text) *text += '\n';
            return text;
          }};
}

std::optional<ServerAnswer> answer_line(const AdminSocket::Handler& handler, const ClientServer::Request& from) {
  if (from.sender == Sender::kFiles) {
    return as_line(
        {admin_error("only root and uid " + std::to_string(geteuid()) + ", which runs the daemon, may send a file"),
         {}});
  }
  const std::string_view so_far = from.so_far;
  const size_t end = so_far.find('\n');
  if (std::min(end, so_far.size()) > AdminSocket::kMostRequest) {
    return as_line({admin_error("a request has at most " + std::to_string(AdminSocket::kMostRequest) + " bytes"), {}});
  }
  // A client may also end its request by closing its side, without a newline.
  if (end == std::string_view::npos && from.sender == Sender::kOpen) return std::nullopt;
  AdminRequest request{.line = std::string(so_far.substr(0, end)), .user = from.user, .file = std::move(from.file)};
  if (request.line.ends_with('\r')) request.line.pop_back();
  return as_line(handler(request));
}

}  // namespace

std::string admin_text(const nlohmann::json& document) {
  return document.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string admin_error(const std::string& text) { return admin_text(nlohmann::json{{"error", text}}); }

AdminSocket::AdminSocket(const std::string& path, Handler handler)
    : listener_(path, ListeningSocket::Kind::kStream, "admin"),
      server_(listener_.fd(),
              {.name = "the admin socket",
               .most_request = kMostRequest,
               .answer = [handler = std::move(handler)](
                             const ClientServer::Request& request) { return answer_line(handler, request); },
               .timeout = admin_error("no answer within a minute") + "\n"}) {
  listener_.open();
}

}  // namespace gradlane
