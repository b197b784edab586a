//! HTML tables for notebooks: escaped text, without scripts or styles.

use std::fmt::Display;

use arrow_schema::Field;

/// Escapes the five characters that mean something in HTML.
fn escape(text: &str, html: &mut String) {
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
}

fn element(tag: &str, text: &str, html: &mut String) {
    html.extend(["<", tag, ">"]);
    escape(text, html);
    html.extend(["</", tag, ">"]);
}

/// A table with a head, `title` above it and a paragraph for each of `remarks` below it.
pub(super) fn table<'a, R>(
    title: &str,
    head: &[&str],
    rows: impl IntoIterator<Item = R>,
    remarks: impl IntoIterator<Item = &'a str>,
) -> String
where
    R: IntoIterator<Item: AsRef<str>>,
{
    let mut html = "<div>".to_owned();
    element("p", title, &mut html);
    html.push_str("<table><thead><tr>");
    head.iter().for_each(|cell| element("th", cell, &mut html));
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        row.into_iter().for_each(|cell| element("td", cell.as_ref(), &mut html));
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
    remarks.into_iter().for_each(|remark| element("p", remark, &mut html));
    html.push_str("</div>");
    html
}

/// A table of an object's attributes, one a row.
pub(super) fn attributes(title: &str, attributes: &[(&str, String)]) -> String {
    let mut html = "<div>".to_owned();
    element("p", title, &mut html);
    html.push_str("<table><tbody>");
    for (name, value) in attributes {
        html.push_str("<tr>");
        element("th", name, &mut html);
        element("td", value, &mut html);
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

/// A tuple as Python writes it.
pub(super) fn tuple<T: Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    match items.as_slice() {
        [only] => format!("({only},)"),
        several => format!("({})", several.join(", ")),
    }
}

/// The name and the type of a field.
pub(super) fn field(field: &Field) -> String {
    match field.name().as_str() {
        "" => field.data_type().to_string(),
        name => format!("{name}: {}", field.data_type()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let html = table("<t>", &["&"], [["\"'"]], ["<i>"]);
        assert_eq!(
            html,
            "<div><p>&lt;t&gt;</p><table><thead><tr><th>&amp;</th></tr></thead><tbody><tr><td>&quot;&#39;</td></tr></tbody></table>\
             <p>&lt;i&gt;</p></div>"
        );
        let html = attributes("t", &[("a", "<&>".to_owned())]);
        assert_eq!(html, "<div><p>t</p><table><tbody><tr><th>a</th><td>&lt;&amp;&gt;</td></tr></tbody></table></div>");
    }

    #[test]
    fn tuples_are_python() {
        assert_eq!([tuple::<i64>(&[]), tuple(&[1]), tuple(&[1, 2])], ["()", "(1,)", "(1, 2)"]);
    }
}
