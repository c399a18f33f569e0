"""All rows. Each subject has a file with its rows, whose list is added here."""

from tests.vm import (accelerator_rows, checksum_rows, cpu_rows, driver_rows, failure_rows, fixture_rows, igb_rows,
                      machines_rows, nic_rows, numa_rows, packed_rows, refusal_rows, steering_rows)

ROWS = [*driver_rows.ROWS, *steering_rows.ROWS, *checksum_rows.ROWS, *refusal_rows.ROWS, *nic_rows.ROWS, *failure_rows.ROWS, *fixture_rows.ROWS,
        *cpu_rows.ROWS, *machines_rows.ROWS, *accelerator_rows.ROWS, *numa_rows.ROWS, *igb_rows.ROWS, *packed_rows.ROWS]
