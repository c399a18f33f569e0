// bypass_tables.h - the two tables of bypass.h, as parts of a batch (control thread)
#pragma once

#include <string>

#include "dataplane/accelerator/kernel/bypass.h"
#include "dataplane/accelerator/kernel/nft_batch.h"

namespace gradlane {

void add_held(NftBatch& batch, const Bypass& bypass);
void add_bypass(NftBatch& batch, const Bypass& bypass);
// Returns the reason why a batch failed, from its errno.
[[nodiscard]] std::string nft_fault(int error);

}  // namespace gradlane
