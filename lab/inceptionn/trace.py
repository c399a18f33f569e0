"""trace.py - times of codecs in each step, from the file that `gradlane trace` writes"""

import collections

WORK = ("encode_us", "add_us", "decode_us")


def codec_times(trace, step_bytes):
    """Returns {"encode_us": {node: [...]}, "add_us": ..., "decode_us": ...}: a daemon's time in consecutive operations
    that have as many bytes as a step. `trace`: what `gradlane trace` writes for Perfetto."""
    operations = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        args = event.get("args", {})
        if event.get("cat") == "operation" and not {"began_before_the_trace", "not_over_at_its_end"} & args.keys():
            operations[str(event["pid"])].append(args)
    found = {work: collections.defaultdict(list) for work in WORK}
    for node, of_node in sorted(operations.items()):
        step, last = [], None
        for args in sorted(of_node, key=lambda args: args["number"]):
            if step and args["number"] != last + 1:
                step = []
            step.append(args)
            last = args["number"]
            if sum(each["bytes"] for each in step) == step_bytes:
                for work in WORK:
                    found[work][node].append(round(sum(each[work] for each in step), 1))
                step = []
    return found
