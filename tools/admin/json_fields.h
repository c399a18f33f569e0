// json_fields.h - fields of a document that may lack anything, as it may be another version's (no I/O)
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace gradlane {

// What is not there, or of another type, is empty, 0 or false.
[[nodiscard]] std::string text_at(const nlohmann::json& of, const char* key);
[[nodiscard]] uint64_t number_at(const nlohmann::json& of, const char* key);
[[nodiscard]] bool flag_at(const nlohmann::json& of, const char* key);
[[nodiscard]] nlohmann::json list_at(const nlohmann::json& of, const char* key);
[[nodiscard]] nlohmann::json object_at(const nlohmann::json& of, const char* key);

}  // namespace gradlane
