#include <bit>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/base/philox.h"
#include "engine/comm/steps.h"
#include "engine/comm/transport_race.h"
#include "engine/ops/residual_add/residual_add.h"

namespace lockstep {
namespace {

enum class Kind { sum_bf16, sum_fp32, gather };

struct Case {
  Kind kind;
  int64_t n;  // values of 2 bytes (sum_bf16) or 4
};

// One value, odd numbers, decode's messages, and what is cut in pieces.
constexpr Case kCases[] = {
    {Kind::sum_bf16, 1},      {Kind::gather, 1},      {Kind::sum_fp32, 7},
    {Kind::sum_bf16, 5120},   {Kind::gather, 3},      {Kind::sum_bf16, 20480},
    {Kind::sum_fp32, 10240},  {Kind::gather, 10001},  {Kind::sum_bf16, 150001},
    {Kind::sum_bf16, 300002}, {Kind::gather, 270001}, {Kind::sum_bf16, 524295},
    {Kind::sum_fp32, 100003},
};
constexpr int kRounds = 2;

// Partial sums of both ranks where rounding goes wrong first: zeros of both signs, infinities,
// overflow, subnormal numbers, and ties.
constexpr uint16_t kEdges[][2] = {{0x8000, 0x8000}, {0x8000, 0x0000}, {0x7f80, 0x3f80},
                                  {0xff80, 0xbf80}, {0x7f7f, 0x7f7f}, {0x0001, 0x0001},
                                  {0x0001, 0x8001}, {0x3f80, 0x3b80}, {0x3f81, 0x3b80},
                                  {0x0080, 0x8001}, {0x4049, 0xc048}};

// Finite; three of four are of like sizes, so that their sums need all bits.
uint32_t value_bits(PhiloxStream& stream) {
  const uint32_t bits = stream.next_u32();
  if (bits % 4 != 0) return (bits & 0x807fffffu) | ((120 + (bits >> 23 & 15u)) << 23);
  return (bits & 0x7f800000u) == 0x7f800000u ? bits & ~0x40000000u : bits;
}

// What `rank` sends in case `index` of a round, as 32-bit patterns (the upper half of them alone
// for bfloat16).
std::vector<uint32_t> message(int rank, int round, size_t index) {
  const Case& one = kCases[index];
  PhiloxStream stream(static_cast<uint64_t>(100 * round) + index, static_cast<uint64_t>(rank));
  std::vector<uint32_t> values(static_cast<size_t>(one.n));
  for (size_t i = 0; i < values.size(); ++i) {
    const bool edge = one.kind != Kind::gather && i < std::size(kEdges);
    values[i] = edge ? uint32_t{kEdges[i][rank]} << 16 : value_bits(stream);
    if (one.kind == Kind::sum_bf16) values[i] &= 0xffff0000u;
  }
  return values;
}

std::vector<uint32_t> expected(int round, size_t index) {
  std::vector<uint32_t> mine = message(0, round, index);
  const std::vector<uint32_t> theirs = message(1, round, index);
  if (kCases[index].kind == Kind::gather) {
    mine.insert(mine.end(), theirs.begin(), theirs.end());
    return mine;
  }
  const auto as_floats = [](const std::vector<uint32_t>& bits) {
    std::vector<float> values(bits.size());
    std::memcpy(values.data(), bits.data(), bits.size() * 4);
    return values;
  };
  std::vector<float> sum = as_floats(mine);
  const bool bf16 = kCases[index].kind == Kind::sum_bf16;
  sum_partials(sum.data(), as_floats(theirs).data(), sum.data(), kCases[index].n,
               bf16 ? Rounding::bf16 : Rounding::none);
  std::memcpy(mine.data(), sum.data(), mine.size() * 4);
  return mine;
}

std::vector<uint16_t> upper_halves(const std::vector<uint32_t>& bits) {
  std::vector<uint16_t> codes(bits.size());
  for (size_t i = 0; i < bits.size(); ++i) codes[i] = static_cast<uint16_t>(bits[i] >> 16);
  return codes;
}

std::string describe(const Case& one) {
  if (one.kind == Kind::gather) return "gather of " + std::to_string(one.n) + " words";
  return "sum of " + std::to_string(one.n) +
         (one.kind == Kind::sum_bf16 ? " bfloat16 values" : " float32 values");
}

// One case on its way: its place on the device, and what came back.
class Trial {
 public:
  Trial(int round, size_t index, int rank, Device& device)
      : round_(round),
        index_(index),
        memory_(device, 3 * room()),
        bits_(message(rank, round, index)),
        codes_(upper_halves(bits_)) {}

  void begin(DeviceCommunicator& transport, Stream& stream) {
    const Case& one = kCases[index_];
    const bool bf16 = one.kind == Kind::sum_bf16;
    const void* from = bf16 ? static_cast<const void*>(codes_.data()) : bits_.data();
    const int64_t n_bytes = one.n * (bf16 ? 2 : 4);
    stream.copy_in(memory_.data(), from, n_bytes);
    if (one.kind == Kind::gather) {
      seen_.resize(static_cast<size_t>(2 * n_bytes));
      stream.fill(memory_.data() + room(), 0xab, 2 * n_bytes);
      transport.all_gather(memory_.data(), n_bytes, memory_.data() + room(), stream);
    } else {
      seen_.resize(static_cast<size_t>(n_bytes));
      transport.all_reduce(memory_.data(), one.n, bf16 ? Rounding::bf16 : Rounding::none, stream);
    }
    const int64_t at = one.kind == Kind::gather ? room() : 0;
    stream.copy_out(seen_.data(), memory_.data() + at, static_cast<int64_t>(seen_.size()));
  }

  // After the stream has been synchronised.
  void check() const {
    const std::vector<uint32_t> right = expected(round_, index_);
    const bool bf16 = kCases[index_].kind == Kind::sum_bf16;
    for (size_t i = 0; i < right.size(); ++i) {
      uint32_t is = 0;
      uint32_t should = right[i];
      std::memcpy(&is, seen_.data() + i * (bf16 ? 2 : 4), bf16 ? 2 : 4);
      if (bf16) should >>= 16;
      if (is == should) continue;
      fail("{}: value {} is {:#x}, not {:#x}", describe(kCases[index_]), i, is, should);
    }
  }

 private:
  int64_t room() const { return (kCases[index_].n * 4 + 255) / 256 * 256; }

  int round_;
  size_t index_;
  DeviceMemory memory_;
  std::vector<uint32_t> bits_;
  std::vector<uint16_t> codes_;
  std::vector<std::byte> seen_;
};

}  // namespace

void prove_transport(DeviceCommunicator& transport, Communicator& host, Device& device,
                     Stream& stream) {
  std::vector<Trial> trials;
  in_step(host, [&] {
    for (int round = 0; round < kRounds; ++round) {
      for (size_t index = 0; index < std::size(kCases); ++index) {
        trials.emplace_back(round, index, host.rank(), device);
      }
    }
  });
  in_step(host, [&] {
    for (Trial& trial : trials) trial.begin(transport, stream);
    transport.synchronize(stream);
    for (const Trial& trial : trials) trial.check();
  });
}

}  // namespace lockstep
