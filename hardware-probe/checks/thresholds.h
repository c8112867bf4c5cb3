// Every number that a verdict depends on, once, with where it comes from. Bandwidth bars depend on
// the memory and lie in the card database.
#pragma once

namespace lockstep::probe {

struct Threshold {
  double value;
  const char* unit;
  const char* source;
};

// Identity (C02)
inline constexpr Threshold kClockTolerance{0.02, "share",
                                           "clock tables are exact; 2 % allows for rounding"};
inline constexpr Threshold kBoostTolerance{0.05, "share",
                                           "makers of gaming cards move the top boost step"};
inline constexpr Threshold kMemorySizeTolerance{
    0.04, "share", "V100 dumps: up to 1 % reserved; other cards up to 4 %"};
inline constexpr Threshold kCacheTolerance{0.30, "share",
                                           "another chip differs by far more than 30 % in L2"};
inline constexpr Threshold kAboveTheory{1.05, "x",
                                        "no memory is faster than its clock; 5 % for timing"};
inline constexpr Threshold kVariantShare{
    0.70, "x", "variants of the Volta chip keep 0.76 and more, its mining card a twentieth"};

// History (C05)
inline constexpr Threshold kRetiredPagesFail{10, "pages",
                                             "Meta gcm: 10 retired pages; DCGM: 15 soft, 63 hard"};
inline constexpr Threshold kRetiredRecentFail{3, "pages",
                                              "three pages within 90 days: a defect that grows"};
inline constexpr Threshold kRecentDays{90, "days", "window for growing defects (proposal)"};
inline constexpr Threshold kRetiredEndOfLife{60, "pages",
                                             "NVIDIA dynamic page retirement: at most 64 pages"};

// Heat (C06, C17, C18)
inline constexpr Threshold kIdleTemperature{60, "C",
                                            "failed thermal interfaces idle at 79 C and more"};
inline constexpr Threshold kIdlePowerRatio{1.5, "x",
                                           "1.5 times the database's idle power (proposal)"};
inline constexpr Threshold kThrottleShareFail{0.02, "share", "2 % of samples in thermal slowdown"};
inline constexpr Threshold kTemperatureMargin{5, "C",
                                              "distance from the maximum operating temperature"};
inline constexpr Threshold kTogetherRatioPass{0.95, "x", "clock together over clock alone"};
inline constexpr Threshold kTogetherRatioFail{0.88, "x", "clock together over clock alone"};

// PCIe (C07 to C09)
inline constexpr Threshold kPcieSharePass{
    0.75, "share", "gen3 x16 gives 12 to 13 of 15.75 GB/s on healthy machines"};
inline constexpr Threshold kPcieShareFail{0.50, "share", "half of the lanes' rate is lost"};
inline constexpr Threshold kReplaysPerMinuteFail{10, "1/min",
                                                 "DCGM allows 80 for its whole PCIe test"};

// Memory (C10 to C14)
inline constexpr Threshold kChunkPass{0.95, "x", "HBM is uniform; 5 % below the median is sick"};
inline constexpr Threshold kChunkFail{0.90, "x", "10 % below the median"};
inline constexpr Threshold kCoveragePass{0.95, "share",
                                         "V100-16 leaves 98.5 % free; 95 % is always possible"};
inline constexpr Threshold kCoverageLeast{0.90, "share", "below 90 % tested nothing can be said"};

// Compute (C15, C16)
inline constexpr Threshold kSlowSm{1.10, "x", "sound H200s: up to 1.08 measured"};
inline constexpr Threshold kRatePass{0.90, "share", "share of the formula at the observed clock"};
inline constexpr Threshold kRateFail{0.80, "share", "share of the formula at the observed clock"};

// Links (C19 to C23)
inline constexpr Threshold kCrcRateFail{1, "1/s",
                                        "stricter than DCGM's 100/s: a healthy link counts none"};
inline constexpr Threshold kLatencyPass{5, "us",
                                        "P2P on: 1.0 to 2.3 us; through the host: 11 to 20 us"};
inline constexpr Threshold kLatencyFail{50, "us",
                                        "slower than every working path through the host"};
inline constexpr Threshold kCopyLatencyFail{1000, "us",
                                            "a 4 KiB copy of 49 ms was measured on a broken pair"};
inline constexpr Threshold kNvlinkSharePass{0.85, "share",
                                            "V100 145/150, H200 391/450 GB/s measured"};
inline constexpr Threshold kNvlinkShareFail{0.80, "share", "a fifth of the links' rate is lost"};
inline constexpr Threshold kPcieP2pShare{0.60, "share", "gen3 x16: 10 to 13 GB/s between cards"};
inline constexpr Threshold kBounceRatio{0.90, "x", "peer copies slower than through host memory"};

// Software (C24)
inline constexpr Threshold kOldestDriver{450, "branch",
                                         "first branch with CUDA 11 and retired-page times"};

}  // namespace lockstep::probe
