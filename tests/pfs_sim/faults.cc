#include "tests/pfs_sim/faults.h"

#include <errno.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace pfs_sim {
namespace {

struct NamedErrno {
  std::string_view name;
  int value;
};

constexpr NamedErrno kErrnos[] = {
    {"EPERM", EPERM},   {"ENOENT", ENOENT}, {"EINTR", EINTR},         {"EIO", EIO},
    {"ENXIO", ENXIO},   {"EBADF", EBADF},   {"EAGAIN", EAGAIN},       {"ENOMEM", ENOMEM},
    {"EACCES", EACCES}, {"EBUSY", EBUSY},   {"EEXIST", EEXIST},       {"EXDEV", EXDEV},
    {"ENODEV", ENODEV}, {"EINVAL", EINVAL}, {"EMFILE", EMFILE},       {"ENFILE", ENFILE},
    {"EFBIG", EFBIG},   {"ENOSPC", ENOSPC}, {"EROFS", EROFS},         {"EDQUOT", EDQUOT},
    {"ESTALE", ESTALE}, {"ENOTCONN", ENOTCONN}, {"ETIMEDOUT", ETIMEDOUT}, {"EREMOTEIO", EREMOTEIO},
    {"ENAMETOOLONG", ENAMETOOLONG}, {"EOPNOTSUPP", EOPNOTSUPP}, {"ECONNRESET", ECONNRESET},
    {"EHOSTDOWN", EHOSTDOWN}};

bool SetKind(std::string_view value, FaultRule* rule, std::string* why) {
  constexpr std::pair<std::string_view, FaultKind> kKinds[] = {
      {"hang", FaultKind::kHang},   {"short", FaultKind::kShort},
      {"flip", FaultKind::kFlip},   {"stale_attr", FaultKind::kStaleAttr},
      {"delay", FaultKind::kDelay}};
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const auto& k) { return k.first == value; });
  if (kind != std::end(kKinds)) {
    rule->kind = kind->second;
    return true;
  }
  const auto error = ErrnoFromName(value);
  if (!error || *error == 0) {
    *why = "errno=" + std::string(value) +
           " is neither an errno name nor hang, short, flip, stale_attr, delay";
    return false;
  }
  rule->kind = FaultKind::kErrno;
  rule->error = *error;
  return true;
}

bool SetNumber(const KeyValue& word, FaultRule* rule, std::string* why) {
  const std::pair<std::string_view, uint64_t*> fields[] = {
      {"nth", &rule->nth}, {"every", &rule->every}, {"count", &rule->count},
      {"bit", &rule->bit}, {"bytes", &rule->bytes}, {"usec", &rule->delay_us}};
  for (const auto& [key, field] : fields) {
    if (key != word.key) continue;
    const auto number = ParseNumber(word.value);
    const bool positive = key == "nth" || key == "every" || key == "count";
    if (!number || (positive && *number == 0)) {
      *why = std::string(key) + "=" + std::string(word.value) + " is not a " +
             (positive ? "positive " : "") + "number";
      return false;
    }
    *field = *number;
    return true;
  }
  *why = "unknown key '" + std::string(word.key) +
         "' (op, path, nth, every, count, errno, bit, bytes, usec)";
  return false;
}

// Kinds that change an answer make sense for one kind of answer only.
bool CheckKind(FaultRule* rule, std::string* why) {
  if (rule->op == Op::kRelease || rule->op == Op::kOther) {
    *why = "op=" + std::string(OpName(*rule->op)) + " cannot fail";
    return false;
  }
  switch (rule->kind) {
    case FaultKind::kShort:
    case FaultKind::kFlip:
      if (!rule->op) rule->op = Op::kRead;
      if (*rule->op == Op::kRead) return true;
      *why = "short and flip need op=read";
      return false;
    case FaultKind::kStaleAttr:
      if (!rule->op || *rule->op == Op::kLookup || *rule->op == Op::kGetattr) return true;
      *why = "stale_attr needs op=lookup, op=getattr or no op";
      return false;
    case FaultKind::kDelay:
      if (rule->delay_us > 0) return true;
      *why = "delay needs usec=N";
      return false;
    case FaultKind::kErrno:
    case FaultKind::kHang:
      return true;
  }
  return true;
}

bool Applies(const FaultRule& rule, Op op) {
  if (rule.op) return *rule.op == op;
  if (rule.kind == FaultKind::kStaleAttr) return op == Op::kLookup || op == Op::kGetattr;
  return IsCosted(op);
}

}  // namespace

std::optional<int> ErrnoFromName(std::string_view name) {
  for (const NamedErrno& known : kErrnos) {
    if (known.name == name) return known.value;
  }
  const auto number = ParseNumber(name);
  if (number && *number < 4096) return static_cast<int>(*number);
  return std::nullopt;
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return value;
}

bool GlobMatches(const std::string& pattern, const std::string& path) {
  return fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

std::optional<FaultRule> ParseFaultRule(const std::vector<KeyValue>& words, std::string* why) {
  FaultRule rule;
  bool has_kind = false;
  bool has_nth = false;
  bool has_more = false;
  for (const KeyValue& word : words) {
    if (word.key == "op") {
      if (word.value == "all") continue;
      rule.op = OpFromName(word.value);
      if (!rule.op) {
        *why = "unknown operation '" + std::string(word.value) + "'";
        return std::nullopt;
      }
    } else if (word.key == "path") {
      rule.path = word.value;
      if (rule.path.size() > 1 && rule.path[0] == '/') rule.path.erase(0, 1);
    } else if (word.key == "errno") {
      if (!SetKind(word.value, &rule, why)) return std::nullopt;
      has_kind = true;
    } else {
      if (!SetNumber(word, &rule, why)) return std::nullopt;
      has_nth |= word.key == "nth";
      has_more |= word.key == "every" || word.key == "count";
    }
  }
  if (!has_kind) {
    *why = "errno= is missing";
    return std::nullopt;
  }
  if (!CheckKind(&rule, why)) return std::nullopt;
  if (has_nth && !has_more) rule.count = 1;  // "nth=3" alone means the third and no other
  return rule;
}

uint64_t FaultTable::Add(FaultRule rule) {
  rule.id = next_id_++;
  rules_.push_back(std::move(rule));
  return rules_.back().id;
}

bool FaultTable::Remove(uint64_t id) {
  return std::erase_if(rules_, [id](const FaultRule& rule) { return rule.id == id; }) > 0;
}

const FaultRule* FaultTable::Match(Op op, const std::string& path) {
  for (FaultRule& rule : rules_) {
    if (!Applies(rule, op) || !GlobMatches(rule.path, path)) continue;
    ++rule.seen;
    if (rule.fired >= rule.count || rule.seen < rule.nth) continue;
    if ((rule.seen - rule.nth) % rule.every != 0) continue;
    ++rule.fired;
    return &rule;
  }
  return nullptr;
}

}  // namespace pfs_sim
