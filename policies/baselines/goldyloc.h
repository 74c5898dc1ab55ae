// The baseline after GOLDYLOC (arXiv 2409.02227; ACM TACO 2025, 10.1145/3730584): as many GEMMs
// side by side on streams as a logistic regression predicts from their sizes and from how many are
// queued, each with its kernel for that many (GO-variant, looked up by the device).
//
// From the paper: a degree per GEMM out of {1, 2, 4, 8}, predicted online from what is queued; the
// kernel that was tuned for the degree; independent kernels on streams. Ours, because the paper
// does not say: of GEMMs of different shapes, each one's degree is an upper limit to its co-run
// set; GEMMs already running take part in the degree; priorities, collectives and copies as in
// `auto`. docs/adr/0012-goldyloc-baseline.md
#ifndef CONCERT_POLICIES_BASELINES_GOLDYLOC_H_
#define CONCERT_POLICIES_BASELINES_GOLDYLOC_H_

#include <memory>

#include "policies/seam/policy.h"

namespace concert::policies {

std::unique_ptr<Policy> MakeGoldyloc(const PolicyInputs& inputs);

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_BASELINES_GOLDYLOC_H_
