// json_fields.h - access to fields of a document that may lack any of them, as it may be of another version (no I/O)
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace gradlane {

// Return the value of a field. If the field is missing, or of another type, they return an empty value, 0 or false.
[[nodiscard]] std::string text_at(const nlohmann::json& of, const char* key);
[[nodiscard]] uint64_t number_at(const nlohmann::json& of, const char* key);
[[nodiscard]] bool flag_at(const nlohmann::json& of, const char* key);
[[nodiscard]] nlohmann::json list_at(const nlohmann::json& of, const char* key);
[[nodiscard]] nlohmann::json object_at(const nlohmann::json& of, const char* key);

}  // namespace gradlane
