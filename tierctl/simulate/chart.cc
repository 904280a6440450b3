#include "tierctl/simulate/chart.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <functional>

namespace tierctl::simulate {
namespace {

constexpr double kWidth = 460;   // of one plot
constexpr double kHeight = 300;
constexpr double kLeft = 60;
constexpr double kTop = 50;
constexpr double kGap = 90;
constexpr int kTicks = 5;
// Tells ten lines apart, also for people who do not see red and green (Okabe and Ito).
constexpr const char* kColors[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"};
constexpr const char* kBoundColor = "#F0C000";

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  char text[256];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return text;
}

std::string Markup(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<' || c == '>' || c == '&' || c == '"') {
      safe += "&#" + std::to_string(static_cast<int>(c)) + ";";
    } else {
      safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return safe;
}

std::string Text(double x, double y, const std::string& anchor, const std::string& text) {
  return Format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor.c_str()) + Markup(text) + "</text>\n";
}

struct Plot {
  std::string title;
  double left = kLeft;
  double most_x = 1;  // share of the dataset
  double most_y = 1;

  double X(double share) const { return left + share / most_x * kWidth; }
  double Y(double value) const { return kTop + kHeight - std::clamp(value / most_y, 0.0, 1.0) * kHeight; }

  std::string Frame() const {
    std::string svg = Text(left + kWidth / 2, kTop - 14, "middle", title);
    for (int i = 0; i <= kTicks; ++i) {
      const double y = most_y * i / kTicks;
      const double x = most_x * i / kTicks;
      svg += Format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", left, Y(y), left + kWidth, Y(y));
      svg += Text(left - 6, Y(y) + 4, "end", Format("%.3g", y));
      svg += Text(X(x), kTop + kHeight + 18, "middle", Format("%.0f%%", 100 * x));
    }
    return svg + Text(left + kWidth / 2, kTop + kHeight + 36, "middle", "RAM, share of the dataset");
  }
  using Value = std::function<double(const Point&)>;
  // The points of a curve, joined.
  std::string Path(const Outcome& outcome, const Curve& curve, const Value& value) const {
    std::vector<Point> points = curve.points;
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.ram_bytes < b.ram_bytes; });
    std::string path;
    for (const Point& point : points) path += Format("%s%.1f,%.1f", path.empty() ? "" : " ", X(point.ram_bytes / outcome.dataset_bytes), Y(value(point)));
    return path;
  }
  std::string Bound(const Outcome& outcome, const Value& value) const {
    return Format("<polyline class=\"bound\" fill=\"none\" stroke=\"%s\" stroke-width=\"4\" stroke-opacity=\"0.35\" points=\"", kBoundColor) + Path(outcome, outcome.bound, value) + "\"/>\n";
  }
  std::string Line(const Outcome& outcome, const Curve& curve, const Value& value, const char* color) const {
    std::string dots;
    for (const Point& point : curve.points) {
      dots += Format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", X(point.ram_bytes / outcome.dataset_bytes), Y(value(point)), color);
    }
    return "<polyline fill=\"none\" stroke-width=\"1.6\" stroke=\"" + std::string(color) + "\" points=\"" + Path(outcome, curve, value) + "\"/>\n" + dots;
  }
};

}  // namespace

std::string Svg(const Outcome& outcome, const std::string& title) {
  Plot hits{.title = "reads that need no source"};
  Plot times{.title = "seconds per epoch", .left = kLeft + kWidth + kGap};
  for (const Curve& curve : outcome.curves) {
    for (const Point& point : curve.points) {
      hits.most_x = times.most_x = std::max(times.most_x, point.ram_bytes / std::max(outcome.dataset_bytes, 1.0));
      times.most_y = std::max(&point == &outcome.curves[0].points[0] ? 0 : times.most_y, point.epoch_seconds * 1.05);
    }
  }
  const bool bounded = !outcome.bound.points.empty();
  const double width = times.left + kWidth + 30;
  const double height = kTop + kHeight + 60 + 18 * static_cast<double>(outcome.curves.size() + (bounded ? 1 : 0));
  std::string svg = Format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\">\n", width, height);
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" + Text(kLeft, 20, "start", title) + hits.Frame() + times.Frame();
  // Everything in RAM: no policy is faster.
  const double best = times.Y(outcome.best_epoch_seconds);
  svg += Format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#444\" stroke-dasharray=\"4 3\"/>\n", times.left, best, times.left + kWidth, best);
  const auto rate = [](const Point& point) { return point.hit_rate; };
  const auto seconds = [](const Point& point) { return point.epoch_seconds; };
  double y = kTop + kHeight + 58;
  const auto key = [&](const char* color, const std::string& text) {
    svg += Format("<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", kLeft, y - 10, color) + Text(kLeft + 18, y, "start", text);
    y += 18;
  };
  if (bounded) svg += hits.Bound(outcome, rate) + times.Bound(outcome, seconds);
  for (std::size_t i = 0; i < outcome.curves.size(); ++i) {
    const Curve& curve = outcome.curves[i];
    const char* color = kColors[i % std::size(kColors)];
    svg += hits.Line(outcome, curve, rate, color) + times.Line(outcome, curve, seconds, color);
    key(color, curve.policy + " (" + curve.mode + ")");
  }
  if (bounded) key(kBoundColor, "Belady bound: no policy is better, whatever it knows");
  return svg + "</svg>\n";
}

std::string Html(const Outcome& outcome, const std::string& title) {
  std::string html = "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>" + Markup(title) + "</title>\n<body style=\"font-family:sans-serif\">\n" + Svg(outcome, title) +
                     "<table border=\"1\" cellpadding=\"4\" style=\"border-collapse:collapse\">\n"
                     "<tr><th>policy<th>knows<th>RAM, share<th>RAM, GB<th>hits<th>hits in RAM<th>source GB per epoch<th>seconds per epoch\n";
  for (const Curve& curve : outcome.curves) {
    for (const Point& point : curve.points) {
      html += "<tr><td>" + Markup(curve.policy) + "<td>" + curve.mode +
              Format("<td>%.1f%%<td>%.3f<td>%.4f<td>%.4f<td>%.3f<td>%.3f\n", 100 * point.ram_bytes / outcome.dataset_bytes, point.ram_bytes * 1e-9, point.hit_rate, point.ram_rate,
                     point.source_bytes * 1e-9, point.epoch_seconds);
    }
  }
  for (const Point& point : outcome.bound.points) {
    html += Format("<tr><td>bound<td>-<td>%.1f%%<td>%.3f<td>%.4f<td>-<td>%.3f<td>%.3f\n", 100 * point.ram_bytes / outcome.dataset_bytes, point.ram_bytes * 1e-9, point.hit_rate,
                   point.source_bytes * 1e-9, point.epoch_seconds);
  }
  return html + "</table>\n";
}

}  // namespace tierctl::simulate
