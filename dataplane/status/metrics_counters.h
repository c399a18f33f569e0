// metrics_counters.h - under which names Prometheus has the counters of packet paths (constant)
#pragma once

#include <string_view>

namespace gradlane {

// Rows of one family follow one another; the first one has its help.
struct MetricsRow {
  std::string_view counter;  // its name, as in counter_set.h
  std::string_view family;   // "": it is there under another name, by codec or by port
  std::string_view label;    // beside those of where it is counted; "": none
  std::string_view value;    // of the label
  std::string_view help;
  double unit = 1;  // what a count of one is
};

// Of a rank on a lane: Counter.
inline constexpr MetricsRow kRankRows[] = {
    {"delivered", "gradlane_packets_received_total", "kind", "data", "packets received and taken"},
    {"ack_received", "gradlane_packets_received_total", "kind", "ack", ""},
    {"hello_received", "gradlane_packets_received_total", "kind", "hello", ""},
    {"hello_stale", "gradlane_packets_dropped_total", "reason", "hello_stale", "packets received and dropped"},
    {"hello_refused", "gradlane_packets_dropped_total", "reason", "hello_refused", ""},
    {"duplicate", "gradlane_packets_dropped_total", "reason", "duplicate", ""},
    {"too_far", "gradlane_packets_dropped_total", "reason", "too_far", ""},
    {"too_short", "gradlane_packets_dropped_total", "reason", "too_short", ""},
    {"bad_magic", "gradlane_packets_dropped_total", "reason", "bad_magic", ""},
    {"bad_version", "gradlane_packets_dropped_total", "reason", "bad_version", ""},
    {"bad_crc", "gradlane_packets_dropped_total", "reason", "bad_crc", ""},
    {"bad_kind", "gradlane_packets_dropped_total", "reason", "bad_kind", ""},
    {"stale_session", "gradlane_packets_dropped_total", "reason", "stale_session", ""},
    {"unknown_peer", "gradlane_packets_dropped_total", "reason", "unknown_peer", ""},
    {"bad_run", "gradlane_packets_dropped_total", "reason", "bad_run", ""},
    {"bad_bounds", "gradlane_packets_dropped_total", "reason", "bad_bounds", ""},
    {"bad_route", "gradlane_packets_dropped_total", "reason", "bad_route", ""},
    {"bad_digest", "gradlane_packets_dropped_total", "reason", "bad_digest", ""},
    {"bad_codec", "gradlane_packets_dropped_total", "reason", "bad_codec", ""},
    {"bad_block", "gradlane_packets_dropped_total", "reason", "bad_block", ""},
    {"not_started", "gradlane_packets_dropped_total", "reason", "not_started", ""},
    {"bad_ack", "gradlane_bad_acknowledgements_total", "", "", "acknowledgements of what was never sent"},
    {"data_sent", "gradlane_packets_sent_total", "kind", "data", "packets sent, without retransmissions"},
    {"ack_sent", "gradlane_packets_sent_total", "kind", "ack", ""},
    {"hello_sent", "gradlane_packets_sent_total", "kind", "hello", ""},
    {"retransmit_timeout", "gradlane_retransmissions_total", "cause", "timeout",
     "data packets sent again: after a time-out, or as later ones arrived (sack)"},
    {"retransmit_sack", "gradlane_retransmissions_total", "cause", "sack", ""},
    {"data_bytes", "gradlane_packets_sent_bytes_total", "kind", "data",
     "bytes of packets sent, with retransmissions, from the link header on"},
    {"control_bytes", "gradlane_packets_sent_bytes_total", "kind", "control", ""},
    {"transmit_busy", "gradlane_send_stalls_total", "cause", "transmit_busy",
     "events that kept packets from being sent: the port was busy, no buffer was free, the neighbour's credit was used "
     "up, the window was full"},
    {"no_buffer", "gradlane_send_stalls_total", "cause", "no_buffer", ""},
    {"credit_stall", "gradlane_send_stalls_total", "cause", "credit", ""},
    {"window_stall", "gradlane_send_stalls_total", "cause", "window", ""},
    {"runs_merged", "gradlane_runs_total", "fate", "merged", "runs of elements received, by what became of them"},
    {"runs_absorbed", "gradlane_runs_total", "fate", "absorbed", ""},
    {"runs_relayed", "gradlane_runs_total", "fate", "relayed", ""},
    {"runs_stored", "gradlane_runs_total", "fate", "stored", ""},
    {"runs_discarded", "gradlane_runs_total", "fate", "discarded", ""},
    {"reduce_packets", "gradlane_phase_packets_total", "phase", "reduce", "data packets sent, by phase"},
    {"gather_packets", "gradlane_phase_packets_total", "phase", "gather", ""},
    {"reduce_bytes", "gradlane_phase_bytes_total", "phase", "reduce", "bytes of data packets sent, by phase"},
    {"gather_bytes", "gradlane_phase_bytes_total", "phase", "gather", ""},
    {"run_bytes", "", "", "", ""},
    {"element_bytes", "", "", "", ""},
    {"operations_done", "gradlane_operations_total", "result", "done", "operations that ended"},
    {"operations_failed", "gradlane_operations_total", "result", "failed", ""},
    {"exchange_ns", "gradlane_exchange_seconds_total", "", "",
     "how long operations were under way, waits for other ranks included", 1e-9},
    {"lossy_operations", "gradlane_lossy_operations_total", "", "",
     "sums through a lossy codec without error feedback, a sample of each of which is looked at"},
    {"lossy_values", "gradlane_lossy_values_total", "", "", "values in these samples that were not zero"},
    {"lossy_zeroed", "gradlane_lossy_zeroed_values_total", "", "", "of these, values that became zero"},
    {"lossy_norm_ppm", "gradlane_lossy_norm_share_total", "", "", "lost share of each sample's norm, added up", 1e-6},
    {"sessions", "gradlane_sessions_total", "", "", "sessions of the ring entered"},
    {"peer_silent", "gradlane_peers_lost_total", "cause", "silent",
     "neighbours given up: not heard, heard but not reached, restarted"},
    {"peer_stuck", "gradlane_peers_lost_total", "cause", "stuck", ""},
    {"peer_restarted", "gradlane_peers_lost_total", "cause", "restarted", ""},
};

// Of a queue of a port: QueueCounter, FrameVerdict, TrafficClass. "host" is in both of the last ones, and means the
// same but for what is no IPv4.
inline constexpr MetricsRow kQueueRows[] = {
    {"received", "gradlane_port_receive_frames_total", "", "", "frames received"},
    {"received_bytes", "gradlane_port_receive_bytes_total", "", "", "bytes of frames received"},
    {"sent", "gradlane_port_transmit_frames_total", "", "", "frames sent"},
    {"sent_bytes", "gradlane_port_transmit_bytes_total", "", "", "bytes of frames sent"},
    {"segmented", "gradlane_port_drops_total", "reason", "segmented", "frames and packets dropped, both ways"},
    {"not_neighbour", "gradlane_port_drops_total", "reason", "not_neighbour", ""},
    {"stranger", "gradlane_port_drops_total", "reason", "stranger", ""},
    {"forged", "gradlane_port_drops_total", "reason", "forged", ""},
    {"wrong_tos", "gradlane_port_drops_total", "reason", "wrong_tos", ""},
    {"wrong_lane", "gradlane_port_drops_total", "reason", "wrong_lane", ""},
    {"no_mac", "gradlane_port_drops_total", "reason", "no_mac", ""},
    {"no_address", "gradlane_port_drops_total", "reason", "no_address", ""},
    {"link_down", "gradlane_port_drops_total", "reason", "link_down", ""},
    {"injected_drop", "gradlane_port_drops_total", "reason", "injected_drop", ""},
    {"probe_refused", "gradlane_port_drops_total", "reason", "probe_refused", ""},
    {"runt", "gradlane_port_drops_total", "reason", "runt", ""},
    {"bad_ip_header", "gradlane_port_drops_total", "reason", "bad_ip_header", ""},
    {"ip_options", "gradlane_port_drops_total", "reason", "ip_options", ""},
    {"fragment", "gradlane_port_drops_total", "reason", "fragment", ""},
    {"bad_udp", "gradlane_port_drops_total", "reason", "bad_udp", ""},
    {"bad_checksum", "gradlane_port_drops_total", "reason", "bad_checksum", ""},
    {"bad_arp", "gradlane_port_drops_total", "reason", "bad_arp", ""},
    {"send_busy", "gradlane_port_put_off_total", "cause", "busy",
     "packets put off: the device took no more, or there was no buffer for a copy"},
    {"no_copy", "gradlane_port_put_off_total", "cause", "no_copy", ""},
    {"gradlane", "gradlane_port_receive_kind_frames_total", "kind", "gradlane",
     "frames received: for the exchange, ARP, pings, probes, of a host with this node's address, of other programs"},
    {"arp", "gradlane_port_receive_kind_frames_total", "kind", "arp", ""},
    {"echo", "gradlane_port_receive_kind_frames_total", "kind", "echo", ""},
    {"probe", "gradlane_port_receive_kind_frames_total", "kind", "probe", ""},
    {"rival", "gradlane_port_receive_kind_frames_total", "kind", "rival", ""},
    {"not_for_us", "gradlane_port_receive_kind_frames_total", "kind", "not_for_us", ""},
    {"host", "gradlane_port_receive_kind_frames_total", "kind", "host", ""},
    {"other_ethertype", "gradlane_port_receive_kind_frames_total", "kind", "other_ethertype", ""},
    {"compressed", "gradlane_port_receive_class_packets_total", "class", "compressed",
     "packets received, by the class that their ToS is of"},
    {"raw", "gradlane_port_receive_class_packets_total", "class", "raw", ""},
    {"control", "gradlane_port_receive_class_packets_total", "class", "control", ""},
    {"answered", "gradlane_port_answers_total", "", "", "ARP requests and pings answered"},
    {"arp_sent", "gradlane_port_requests_total", "kind", "arp", "ARP requests, probes and answers to probes sent"},
    {"probe_sent", "gradlane_port_requests_total", "kind", "probe", ""},
    {"injected_duplicate", "gradlane_port_injected_faults_total", "fault", "duplicate",
     "frames doubled, held back or changed on purpose"},
    {"injected_reorder", "gradlane_port_injected_faults_total", "fault", "reorder", ""},
    {"injected_corrupt", "gradlane_port_injected_faults_total", "fault", "corrupt", ""},
    {"injected_delay", "gradlane_port_injected_faults_total", "fault", "delay", ""},
};

}  // namespace gradlane
