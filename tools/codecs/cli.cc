// cli.cc - command-line options of `gradlane codecs`
#include "tools/codecs/cli.h"

namespace gradlane {

CLI::App* add_codecs(CLI::App& app, CodecsOptions& options) {
  CLI::App* codecs = app.add_subcommand("codecs", "List the codecs: bound, ratio, speed, where they run");
  const auto add = [codecs](const char* name, const char* value_name, auto& value, const char* text) {
    return codecs->add_option(name, value, text)->type_name(value_name);
  };
  add("--codec", "CODEC", options.codecs, "Only these codecs; all: one of each");
  add("--data", "NAME", options.data, "Data as in 'bench codec', also recordings (gauss-0.01)");
  codecs->add_flag("--measure", options.measure, "Measure longer, for reliable figures");
  codecs->add_flag("--no-measure", options.no_measure, "Print neither ratios nor speeds");
  codecs->add_flag("--json", options.json, "JSON instead of tables");
  add("--write-docs", "FILE", options.write_docs, "Rewrite the table in this page (docs/codecs.md)");
  codecs->footer(
      "ratio: fp32 bytes per encoded byte of one contribution; enc, dec, merge: speed\n"
      "compared with memcpy, of 1408 bytes; look: speed of a first pass over a tensor.\n"
      "ways: any: all strategies; links: all, with links between all nodes; owners:\n"
      "direct and aggregator. same: what may change without changing the sum's bytes:\n"
      "ways: strategy and lanes; buckets: also the other elements; ranks: neither.");
  return codecs;
}

}  // namespace gradlane
