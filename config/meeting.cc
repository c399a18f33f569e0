// meeting.cc - nodes that a launcher has numbered, but told no hosts, learn each other's addresses (set-up only)
#include "config/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/parse.h"
#include "config/addresses.h"
#include "config/faults.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kGreeting = "gradlane-meeting 1 ";
constexpr std::string_view kNodes = "nodes ";
constexpr std::string_view kRefused = "refused ";
constexpr size_t kLongestGreeting = 64;
constexpr size_t kLongestAnswer = 64 + kMaxNodes * 48;
constexpr size_t kMostGuests = 2 * kMaxNodes;  // connected at a time, strangers among them
constexpr milliseconds kGrace{10'000};         // that a visitor waits longer than rank 0 does
constexpr milliseconds kRetry{200};
constexpr milliseconds kSlice{1'000};  // of a wait, after which the clock is read
constexpr milliseconds kFirstNews{1'000};
constexpr milliseconds kNews{10'000};  // from one word to the next

// ---- Sockets

struct RawAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  RawAddress() : bytes(sizeof(storage)) {}
  RawAddress(const IpAddress& ip, uint16_t port) {
    if (const auto ipv4 = ipv4_of(ip)) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(*ipv4);
      set(address);
    } else {
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(port);
      static_assert(sizeof(address.sin6_addr) == sizeof(IpAddress));
      std::memcpy(&address.sin6_addr, &ip, sizeof(ip));
      set(address);
    }
  }

  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
  [[nodiscard]] IpAddress ip() const noexcept {
    IpAddress ip{};
    if (family() == AF_INET) {
      sockaddr_in address{};
      std::memcpy(&address, &storage, sizeof(address));
      return ip_address(ntohl(address.sin_addr.s_addr));
    }
    sockaddr_in6 address{};
    std::memcpy(&address, &storage, sizeof(address));
    std::memcpy(&ip, &address.sin6_addr, sizeof(ip));
    return ip;
  }

 private:
  template <class T>
  void set(const T& address) noexcept {
    std::memcpy(&storage, &address, sizeof(address));
    bytes = sizeof(address);
  }
};

FileDescriptor tcp_socket(int family) {
  FileDescriptor fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw SetupError(fmt::format("no socket of TCP: {}", std::strerror(errno)));
  return fd;
}

std::string place_text(const Meeting& meeting) {
  return fmt::format(fmt::runtime(ipv4_of(meeting.ip) ? "{}:{}" : "[{}]:{}"), ip_text(meeting.ip), meeting.port);
}

// For poll(), at least 0.
int left_until(Clock::time_point end, Clock::time_point now, milliseconds most) {
  const auto left = std::chrono::duration_cast<milliseconds>(end - now);
  return static_cast<int>(std::clamp(left, milliseconds{0}, most).count());
}

// "118 s"
std::string time_left(Clock::time_point end, Clock::time_point now) {
  return fmt::format("{} s", std::chrono::ceil<std::chrono::seconds>(std::max(end - now, Clock::duration{})).count());
}

// ---- Rank 0

struct MeetingGuest {
  FileDescriptor fd;
  IpAddress ip{};
  std::string text;              // what it has said so far
  std::optional<unsigned> rank;  // once it has said all
};

class MeetingHost {
 public:
  MeetingHost(const Meeting& meeting, const std::string& where) : meeting_(meeting), where_(where) {
    RawAddress address(meeting.ip, meeting.port);
    listener_ = tcp_socket(address.family());
    const int yes = 1;
    (void)setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(listener_.get(), address.get(), address.bytes) == 0 && listen(listener_.get(), SOMAXCONN) == 0) return;
    const int error = errno;
    if (error == EADDRNOTAVAIL) {
      refuse_word(where, fmt::format("this is rank 0, where all meet, and {} is no address of this machine: name the "
                                     "host that rank 0 runs on, by an address that `ip addr` shows there",
                                     ip_text(meeting.ip)));
    }
    refuse_word(where, fmt::format("cannot listen at TCP port {}: {}; another one: @mpi:HOST:PORT", place_text(meeting),
                                   std::strerror(error)));
  }

  std::vector<IpAddress> wait(const std::function<void(const std::string&)>& say) {
    const auto begin = meeting_.now();
    const auto end = begin + meeting_.patience;
    auto news = begin + kFirstNews;
    while (!all_here()) {
      const auto now = meeting_.now();
      if (now >= end) give_up();
      look(left_until(std::min(end, news), now, kSlice), say);
      if (meeting_.now() < news) continue;
      news += kNews;
      if (all_here()) continue;
      say(fmt::format("{}: waiting at {} for {} of {}, {} more at most", where_, place_text(meeting_), missing(),
                      meeting_.world, time_left(end, meeting_.now())));
    }
    std::vector<IpAddress> ips(meeting_.world, meeting_.ip);
    for (const MeetingGuest& guest : guests_) {
      if (guest.rank) ips[*guest.rank] = guest.ip;
    }
    std::vector<std::string> texts;
    for (const IpAddress& ip : ips) texts.push_back(ip_text(ip));
    tell_all(fmt::format("{}{}\n", kNodes, fmt::join(texts, ",")));
    return ips;
  }

 private:
  [[nodiscard]] bool has(unsigned rank) const {
    return rank == 0 || std::ranges::any_of(guests_, [&](const MeetingGuest& it) { return it.rank == rank; });
  }

  [[nodiscard]] bool all_here() const {
    unsigned count = 1;
    for (const MeetingGuest& guest : guests_) count += guest.rank ? 1 : 0;
    return count == meeting_.world;
  }

  [[nodiscard]] std::string missing() const {
    constexpr size_t kNamed = 8;
    std::vector<std::string> ranks;
    for (unsigned rank = 0; rank < meeting_.world; ++rank) {
      if (!has(rank)) ranks.push_back(fmt::format("{}", rank));
    }
    const size_t more = ranks.size() - std::min(ranks.size(), kNamed);
    ranks.resize(ranks.size() - more);
    return fmt::format("rank{} {}{}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "),
                       more == 0 ? "" : fmt::format(" and {} more", more));
  }

  [[noreturn]] void give_up() {
    const std::string why =
        fmt::format("{} of {} did not come to {} within {} s: do their logs say why, and does a firewall let TCP pass?",
                    missing(), meeting_.world, place_text(meeting_), meeting_.patience.count() / 1000);
    tell_all(fmt::format("{}{}\n", kRefused, why));
    refuse_word(where_, why);
  }

  // What is short goes into an empty socket at once. Whoever does not read it finds out by itself.
  static void tell(const MeetingGuest& guest, const std::string& text) {
    (void)!send(guest.fd.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void tell_all(const std::string& text) const {
    for (const MeetingGuest& guest : guests_) {
      if (guest.rank) tell(guest, text);
    }
  }

  void look(int most_ms, const std::function<void(const std::string&)>& say) {
    std::vector<pollfd> all = {{listener_.get(), POLLIN, 0}};
    for (const MeetingGuest& guest : guests_) all.push_back({guest.fd.get(), POLLIN, 0});
    if (poll(all.data(), all.size(), most_ms) <= 0) return;
    std::vector<MeetingGuest> stay;
    for (size_t i = 0; i < guests_.size(); ++i) {
      if (all[i + 1].revents == 0 || hear(guests_[i], say)) stay.push_back(std::move(guests_[i]));
    }
    guests_ = std::move(stay);
    std::erase_if(guests_, [](const MeetingGuest& it) { return !it.fd; });
    if (all[0].revents != 0) welcome();
  }

  void welcome() {
    // Strangers who say nothing make room.
    const auto make_room = [&] { std::erase_if(guests_, [](const MeetingGuest& it) { return !it.rank; }); };
    if (guests_.size() >= kMostGuests) make_room();
    RawAddress from;
    FileDescriptor fd(accept4(listener_.get(), from.get(), &from.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd && (errno == EMFILE || errno == ENFILE)) {
      make_room();
      std::this_thread::sleep_for(milliseconds{10});  // others of this machine may have all of them
    }
    if (!fd) return;
    guests_.push_back({std::move(fd), from.ip(), {}, {}});
  }

  // False: it has gone, or is sent away.
  bool hear(MeetingGuest& guest, const std::function<void(const std::string&)>& say) {
    std::array<char, kLongestGreeting> bytes;
    const ssize_t count = recv(guest.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (count <= 0 || guest.rank) {
      guest.rank.reset();  // another one may be it
      return false;
    }
    guest.text.append(bytes.data(), static_cast<size_t>(count));
    const size_t end = guest.text.find('\n');
    if (end == std::string::npos) return guest.text.size() < kLongestGreeting;
    const std::string why = greeted(guest, std::string_view(guest.text).substr(0, end));
    if (!why.empty()) {
      tell(guest, fmt::format("{}{}\n", kRefused, why));
      say(fmt::format("{}: refused {}: {}", where_, ip_text(guest.ip), why));
    }
    return why.empty() && guest.rank;
  }

  // Empty: it is welcome, or a stranger, who has no rank and is told nothing.
  std::string greeted(MeetingGuest& guest, std::string_view line) {
    if (!line.starts_with(kGreeting)) return "";
    line.remove_prefix(kGreeting.size());
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) return "";
    const auto rank = parse_decimal(std::string(line.substr(0, space)));
    const auto world = parse_decimal(std::string(line.substr(space + 1)));
    if (!rank || !world) return "";
    if (*world != meeting_.world) {
      return fmt::format("rank 0 at {} was started as one of {}, and rank {} as one of {}", place_text(meeting_),
                         meeting_.world, *rank, *world);
    }
    if (*rank >= meeting_.world) return fmt::format("rank {} of {}", *rank, *world);
    if (*rank == 0) return fmt::format("rank 0 is {} already: two programs have it", ip_text(meeting_.ip));
    for (MeetingGuest& other : guests_) {
      if (other.rank != *rank) continue;
      if (other.ip != guest.ip) {
        return fmt::format("rank {} is {} already: two programs have it", *rank, ip_text(other.ip));
      }
      // It was started again, and its last connection has not ended yet.
      tell(other, fmt::format("{}rank {} has come once more from {}\n", kRefused, *rank, ip_text(other.ip)));
      other.rank.reset();
      other.fd.reset();
    }
    guest.rank = static_cast<unsigned>(*rank);
    return "";
  }

  const Meeting meeting_;
  const std::string& where_;
  FileDescriptor listener_;
  std::vector<MeetingGuest> guests_;
};

// ---- All others

class MeetingVisitor {
 public:
  MeetingVisitor(const Meeting& meeting, const std::string& where)
      : meeting_(meeting), where_(where), end_(meeting.now() + meeting.patience) {}

  std::vector<IpAddress> wait(const std::function<void(const std::string&)>& say) {
    auto news = meeting_.now() + kFirstNews;
    while (meeting_.now() < end_) {
      const std::optional<std::string> answer = ask(news, say);
      if (answer && answer->starts_with(kRefused)) refuse_word(where_, "rank 0 says: " + plain(*answer));
      if (answer) return read(std::string_view(*answer).substr(std::min(answer->size(), kNodes.size())));
      if (meeting_.now() >= news) tell(news, say);
      std::this_thread::sleep_for(kRetry);
    }
    refuse_word(where_, fmt::format("{} within {} s: is rank 0 there, and does a firewall let TCP pass?", trouble_,
                                    meeting_.patience.count() / 1000));
  }

 private:
  void tell(Clock::time_point& news, const std::function<void(const std::string&)>& say) const {
    news += kNews;
    say(fmt::format("{}: waiting for all {} ranks at {}, {} more at most: {}", where_, meeting_.world,
                    place_text(meeting_), time_left(end_, meeting_.now()), trouble_));
  }

  // One connection, to its end. Nothing: none came about, or rank 0 has gone without a word.
  std::optional<std::string> ask(Clock::time_point& news, const std::function<void(const std::string&)>& say) {
    RawAddress address(meeting_.ip, meeting_.port);
    const FileDescriptor fd = tcp_socket(address.family());
    if (connect(fd.get(), address.get(), address.bytes) != 0 && errno != EINPROGRESS) return failed(errno);
    pollfd one = {fd.get(), POLLOUT, 0};
    if (poll(&one, 1, left_until(end_, meeting_.now(), milliseconds{3000})) <= 0) return failed(ETIMEDOUT);
    int error = 0;
    socklen_t bytes = sizeof(error);
    (void)getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) return failed(error);
    if (is_itself(fd)) return failed(ECONNREFUSED);
    const std::string greeting = fmt::format("{}{} {}\n", kGreeting, meeting_.rank, meeting_.world);
    if (send(fd.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) < 0) return failed(errno);
    // Rank 0 is there, and says in time who is not.
    end_ = std::max(end_, meeting_.now() + meeting_.patience + kGrace);
    trouble_ = fmt::format("{} has not said who is there", place_text(meeting_));
    std::string answer;
    while (answer.size() < kLongestAnswer) {
      if (meeting_.now() >= end_) return std::nullopt;
      if (meeting_.now() >= news) tell(news, say);
      one = {fd.get(), POLLIN, 0};
      if (poll(&one, 1, left_until(std::min(end_, news), meeting_.now(), kSlice)) <= 0) continue;
      std::array<char, 4096> piece;
      const ssize_t count = recv(fd.get(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (count <= 0) return failed(count < 0 ? errno : ECONNRESET);
      answer.append(piece.data(), static_cast<size_t>(count));
      if (answer.ends_with('\n')) {
        answer.pop_back();
        if (answer.starts_with(kRefused) || answer.starts_with(kNodes)) return answer;
        break;
      }
    }
    refuse_word(where_, fmt::format("what answers at {} is no gradlaned", place_text(meeting_)));
  }

  // Whoever listens there may send anything.
  static std::string plain(std::string text) {
    text.erase(0, kRefused.size());
    std::ranges::replace_if(
        text, [](unsigned char c) { return std::isprint(c) == 0; }, '?');
    return text;
  }

  // Nobody listens, and the kernel has given this side the very port.
  static bool is_itself(const FileDescriptor& fd) {
    RawAddress here, there;
    return getsockname(fd.get(), here.get(), &here.bytes) == 0 &&
           getpeername(fd.get(), there.get(), &there.bytes) == 0 && here.bytes == there.bytes &&
           std::memcmp(&here.storage, &there.storage, here.bytes) == 0;
  }

  std::nullopt_t failed(int error) {
    trouble_ = fmt::format("no connection to {}: {}", place_text(meeting_), std::strerror(error));
    return std::nullopt;
  }

  [[nodiscard]] std::vector<IpAddress> read(std::string_view list) const {
    std::vector<IpAddress> ips;
    while (!list.empty()) {
      const std::string_view one = list.substr(0, list.find(','));
      const auto ip = parse_address(one);
      if (!ip) break;
      ips.push_back(*ip);
      list.remove_prefix(std::min(list.size(), one.size() + 1));
    }
    if (ips.size() == meeting_.world && list.empty()) return ips;
    refuse_word(where_, fmt::format("what answers at {} is no gradlaned", place_text(meeting_)));
  }

  const Meeting meeting_;
  const std::string& where_;
  Clock::time_point end_;
  std::string trouble_ = "nobody";
};

}  // namespace

std::vector<IpAddress> meet(const Meeting& meeting, const std::string& where,
                            const std::function<void(const std::string&)>& say) {
  if (meeting.rank == 0) return MeetingHost(meeting, where).wait(say);
  return MeetingVisitor(meeting, where).wait(say);
}

}  // namespace gradlane
