//! Bar charts as SVG, without a library. Entry item: [`Chart::svg`].

use std::fmt::Write as _;

/// Groups of horizontal bars, one bar for each series.
pub(crate) struct Chart {
    pub(crate) title: String,
    /// The unit, and whether higher or lower is better.
    pub(crate) subtitle: String,
    /// The name and colour of each series, in the order of the bars.
    pub(crate) series: Vec<(String, &'static str)>,
    pub(crate) groups: Vec<Group>,
    /// A reference line and its label.
    pub(crate) mark: Option<(f64, String)>,
    /// A logarithmic scale, for values of different orders of magnitude.
    pub(crate) logarithmic: bool,
    pub(crate) decimals: usize,
}

pub(crate) struct Group {
    pub(crate) label: String,
    /// The values, in the order of the series.
    pub(crate) values: Vec<Option<f64>>,
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 250.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 104.0;
const BAR: f64 = 15.0;
const GAP: f64 = 14.0;

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let rows = |group: &Group| {
            f64::from(u32::try_from(group.values.iter().flatten().count()).unwrap_or(0))
        };
        let inner: f64 = self.groups.iter().map(|group| rows(group) * BAR + GAP).sum();
        let height = TOP + inner + 18.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\" \
             font-family=\"system-ui, Segoe UI, Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"8\" fill=\"#ffffff\"/>\n"
        );
        text(
            &mut svg,
            20.0,
            30.0,
            "font-size=\"17\" font-weight=\"600\" fill=\"#1f2430\"",
            &self.title,
        );
        text(&mut svg, 20.0, 50.0, "fill=\"#5b6472\"", &self.subtitle);
        let mut x = 20.0;
        for (name, colour) in &self.series {
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.0}\" y=\"63\" width=\"12\" height=\"12\" rx=\"3\" fill=\"{colour}\"/>"
            );
            text(&mut svg, x + 17.0, 73.0, "fill=\"#1f2430\"", name);
            x += 36.0 + 6.6 * f64::from(u32::try_from(name.chars().count()).unwrap_or(0));
        }
        let scale = Scale::new(self);
        let mut y = TOP;
        for group in &self.groups {
            let middle = y + rows(group) * BAR / 2.0 + 4.0;
            let style = "text-anchor=\"end\" fill=\"#1f2430\"";
            text(&mut svg, LEFT - 10.0, middle, style, &group.label);
            for (value, (_, colour)) in group.values.iter().zip(&self.series) {
                let Some(value) = value else { continue };
                let width = scale.width(*value);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"2\" \
                     fill=\"{colour}\"/>",
                    BAR - 3.0
                );
                let label = format!("{value:.*}", self.decimals);
                let style = "font-size=\"11\" fill=\"#5b6472\"";
                text(&mut svg, LEFT + width + 6.0, y + BAR - 5.0, style, &label);
                y += BAR;
            }
            y += GAP;
        }
        if let Some((value, label)) = &self.mark {
            let x = LEFT + scale.width(*value);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.0}\" y2=\"{:.0}\" stroke=\"#1f2430\" \
                 stroke-dasharray=\"3 3\"/>",
                TOP - 8.0,
                height - 16.0
            );
            let style = "text-anchor=\"middle\" font-size=\"11\" fill=\"#1f2430\"";
            text(&mut svg, x, TOP - 12.0, style, label);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The scale from values to lengths.
struct Scale {
    least: f64,
    most: f64,
    logarithmic: bool,
}

impl Scale {
    fn new(chart: &Chart) -> Scale {
        let marked = chart.mark.iter().map(|(value, _)| *value);
        let values = chart.groups.iter().flat_map(|group| group.values.iter().flatten().copied());
        let values: Vec<f64> = values.chain(marked).filter(|value| *value > 0.0).collect();
        let most = values.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let least = values.iter().copied().fold(most, f64::min);
        // The smallest bar stays visible.
        Scale { least: least / 2.0, most, logarithmic: chart.logarithmic }
    }

    fn width(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value / self.least).ln() / (self.most / self.least).ln(),
            false => value / self.most,
        };
        share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }
}

fn text(svg: &mut String, x: f64, y: f64, style: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(logarithmic: bool) -> Chart {
        let group = Group { label: "a < b".to_owned(), values: vec![Some(1.0), None, Some(100.0)] };
        Chart {
            title: "Title".to_owned(),
            subtitle: String::new(),
            series: vec![
                ("x".to_owned(), "#111"),
                ("y".to_owned(), "#222"),
                ("z".to_owned(), "#333"),
            ],
            groups: vec![group],
            mark: None,
            logarithmic,
            decimals: 1,
        }
    }

    #[test]
    fn a_bar_for_each_value_in_the_colour_of_its_series() {
        let svg = chart(false).svg();
        assert_eq!(svg.matches("fill=\"#222\"").count(), 1, "only in the legend");
        assert_eq!(svg.matches("fill=\"#333\"").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn the_largest_fills_the_width_and_the_smallest_is_seen() {
        for logarithmic in [true, false] {
            let scale = Scale::new(&chart(logarithmic));
            assert!((scale.width(100.0) - (WIDTH - LEFT - RIGHT)).abs() < 1e-9);
            assert!(scale.width(1.0) > 1.0);
        }
    }
}
