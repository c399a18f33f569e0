// page.cc - the table of codecs in the documentation
#include "tools/codecs/page.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "base/error.h"

namespace gradlane {

std::string page_table(std::span<const CodecFact> facts) {
  std::string text =
      "| name | what it promises | error of the example | residuals | algorithms | same bytes | source |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const CodecFact& fact : facts) {
    const CodecRow& row = fact.codec.row();
    text += fmt::format("| `{}` | {} | `{}`: {} | {} | {} | {} | {} |\n", row.usage, row.promise, row.example,
                        bound_text(fact.codec), fact.codec.states(), ways_name(row),
                        same_bytes_name(same_bytes(fact.codec)), row.source);
  }
  return text;
}

void write_page(const std::string& path, const std::string& table) {
  std::ostringstream read;
  if (std::ifstream in(path); !(read << in.rdbuf())) throw SetupError(fmt::format("{}: cannot be read", path));
  std::string page = read.str();
  const size_t begin = page.find(kPageBegin);
  const size_t end = page.find(kPageEnd);
  if (begin == page.npos || end == page.npos || end < begin) {
    throw SetupError(
        fmt::format("{}: has no lines that mark the place of the table:\n{}{}", path, kPageBegin, kPageEnd));
  }
  const size_t after = begin + std::string_view(kPageBegin).size();
  page.replace(after, end - after, "\n" + table + "\n");
  std::ofstream out(path);
  if (!(out << page << std::flush)) throw SetupError(fmt::format("{}: cannot be written", path));
}

}  // namespace gradlane
