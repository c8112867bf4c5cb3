// The proxy as HTTP client of its ranks (docs/formats/rank-api.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/asio.h"
#include "engine/serve/exchange.h"

namespace lockstep::serve {

// Where the ranks of one start listen.
struct RankEndpoints {
  std::vector<uint16_t> ports;  // on loopback, by rank
  std::string key;              // LOCKSTEP_RANK_KEY
};

// A short call. Nothing when the rank does not answer in full before the deadline.
Task<std::optional<RankReply>> call_rank(asio::io_context& io, const RankEndpoints& endpoints,
                                         int rank, ClientRequest request, Clock::duration deadline);

ClientRequest get_request(std::string target);
ClientRequest sequence_request(std::string target, uint64_t sequence);  // void, cancel

// One connection to a rank for one numbered request.
class RankLink {
 public:
  RankLink(asio::io_context& io, int rank) : rank_(rank), socket_(io) {}

  int rank() const { return rank_; }
  // False when the rank does not take connections.
  Task<bool> connect(const RankEndpoints& endpoints);
  // Still, as far as this side has heard.
  bool is_open();
  // True once every byte of the request is written.
  Task<bool> send(const RankEndpoints& endpoints, const Exchange& exchange);

  enum class End { complete, lost, differs };
  // Feeds the answer into `exchange` until it ends; `on_bytes` hears of each piece.
  Task<End> receive(Exchange& exchange, const std::function<void()>& on_bytes);
  void close();

 private:
  int rank_;
  Tcp::socket socket_;
};

}  // namespace lockstep::serve
