// cli.cc - command-line options of `gradlane codecs`
#include "tools/codecs/cli.h"

namespace gradlane {

CLI::App* add_codecs(CLI::App& app, CodecsOptions& options) {
  CLI::App* codecs = app.add_subcommand("codecs", "List the codecs: bound, ratio, speed, where they run");
  const auto add = [codecs](const char* name, auto& value, const char* text) {
    return codecs->add_option(name, value, text)->type_name("");
  };
  add("--codec", options.codecs, "These only; 'all' is one of each");
  add("--data", options.data, "As in 'bench codec' (gauss-0.01): recordings, too");
  codecs->add_flag("--measure", options.measure, "Longer: figures to be relied on");
  codecs->add_flag("--no-measure", options.no_measure, "Neither ratios nor speeds");
  codecs->add_flag("--json", options.json, "JSON instead of tables");
  add("--write-docs", options.write_docs, "Make the table of this page anew (docs/codecs.md)");
  codecs->footer(
      "ratio: fp32 bytes per encoded byte of one contribution; enc, dec, merge: speed\n"
      "beside memcpy, of 1408 bytes; look: of what is found out about a tensor first.\n"
      "ways: any strategy; links: any, with links between all nodes; owners: direct\n"
      "and aggregator only. same bytes: whatever the way, lanes and buckets; the way\n"
      "and lanes; or the same on all ranks, which is so of all codecs.");
  return codecs;
}

}  // namespace gradlane
