// page.h - the table of codecs in the documentation
#pragma once

#include <span>
#include <string>

#include "tools/codecs/facts.h"

namespace gradlane {

// The lines before and after the table.
inline constexpr const char* kPageBegin = "<!-- gradlane codecs --write-docs docs/codecs.md: begin -->\n";
inline constexpr const char* kPageEnd = "<!-- gradlane codecs --write-docs docs/codecs.md: end -->\n";

// Returns the table in Markdown. It only has facts that are the same on all machines.
[[nodiscard]] std::string page_table(std::span<const CodecFact> facts);

// Replaces the text between these two lines of the file. Throws SetupError.
void write_page(const std::string& path, const std::string& table);

}  // namespace gradlane
