// page.h - the table of codecs in the documentation
#pragma once

#include <span>
#include <string>

#include "tools/codecs/facts.h"

namespace gradlane {

// Lines that stand before and behind the table.
inline constexpr const char* kPageBegin = "<!-- gradlane codecs --write-docs docs/codecs.md: begin -->\n";
inline constexpr const char* kPageEnd = "<!-- gradlane codecs --write-docs docs/codecs.md: end -->\n";

// In markdown: what is the same on all machines.
[[nodiscard]] std::string page_table(std::span<const CodecFact> facts);

// Replaces what stands between the two lines of that file. Throws SetupError.
void write_page(const std::string& path, const std::string& table);

}  // namespace gradlane
