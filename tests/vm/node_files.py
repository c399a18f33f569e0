"""Makes configuration files of nodes in guests, which have their files in /tmp: n0.yaml, n0.sock, log0, ..."""

KEY = "07" * 32


def node(rank, ports, nodes=2, mtu=1500, lanes=1, threads=None, hugepages=False, auth=False, address="10.77.0.{}",
         **settings):
    """Returns the text of a file. `ports` are the entries of its list. `settings` are further keys, in YAML."""
    lines = [f"rank: {rank}", "nodes:", *(f"  - {{rank: {i}, ip: {address.format(i + 1)}}}" for i in range(nodes)),
             f"socket: /tmp/n{rank}.sock", f"mtu: {mtu}", f"memory: {{hugepages: {str(hugepages).lower()}}}"]
    # Emulated CPUs are few and slow, so idle workers leave them to other threads.
    settings.setdefault("workers", f"{{lanes: {lanes}, threads: {threads or lanes}, idle: yield}}")
    settings.setdefault("log", "info")
    settings.setdefault("timeouts", "{peer: 30s, start: 60s, operation: 120s, shutdown: 2s}")
    if auth:
        settings["auth"] = "{key_file: /tmp/ring.key}"
    lines += [f"{key}: {value}" for key, value in settings.items()]
    lines += ["ports:", *(f"  - {port}" for port in ports)]
    return "\n".join(lines) + "\n"


def files(texts, auth=False):
    """Returns files for a guest as {path: content}. `texts` is {rank: text of its file}."""
    found = {f"/tmp/n{rank}.yaml": text for rank, text in texts.items()}
    if auth:
        found["/tmp/ring.key"] = KEY + "\n"
    return found
