use clap::{Args as ClapArgs, ValueEnum};
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    client::{ApiRequest, Cluster, Connection, with_query},
    discovery::Served,
    failure::Failure,
    table::{self, Layout},
    target::{Named, Target},
};
use crate::output::{self, Answer, Error};

/// Show objects of any kind
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  segue get pods
  segue get lws -A
  segue get modeldeployment/chat -o yaml
  segue get pods -l app=chat -w

KIND is the plural, the singular, a short name or the kind itself; KIND.GROUP tells two kinds of one name apart. Exit codes: \
0 shown, 1 an object was not found, 2 no answer from the API.")]
pub(crate) struct Args {
    /// What to show, as KIND, KIND/NAME ... or KIND NAME ...
    #[arg(value_name = "KIND[/NAME]", required = true)]
    what: Vec<String>,
    /// Show the objects of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Show only objects with these labels, as in app=chat,tier!=test
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Watch: show changes, too, until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// Show metadata.managedFields in JSON and YAML
    #[arg(long)]
    show_managed_fields: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

impl Format {
    fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

pub(crate) fn run(args: &Args) -> Result<Answer, Error> {
    super::run(get(args))
}

async fn get(args: &Args) -> Result<Answer, Failure> {
    let named = Named::read(&args.what)?;
    let by_name = named.iter().any(|one| one.name.is_some());
    if by_name && (args.all_namespaces || args.selector.is_some()) {
        return Err(Failure::usage("a name cannot be combined with -A or -l"));
    }
    if args.watch && named.len() > 1 {
        return Err(Failure::usage("-w watches one kind or one object, not several"));
    }
    let cluster = Cluster::connect(&args.connection).await?;
    let mut seeing = Getting { args, cluster, missing: false };
    let mut found: Vec<(Served, Vec<Value>)> = Vec::new();
    for one in named {
        let served = match found.iter().find(|(served, _)| served.answers_to(&one.kind.to_lowercase())) {
            Some((served, _)) => served.clone(),
            None => seeing.cluster.kind_called(&one.kind).await?,
        };
        if args.watch {
            return seeing.watch(&served, one.name.as_deref()).await;
        }
        let Some(body) = seeing.fetch(&served, one.name.as_deref()).await? else { continue };
        match found.iter_mut().find(|(other, _)| *other == served) {
            Some((_, bodies)) => bodies.push(body),
            None => found.push((served, vec![body])),
        }
    }
    seeing.show(&found, by_name)?;
    Ok(if seeing.missing { Answer::No } else { Answer::Yes })
}

struct Getting<'a> {
    args: &'a Args,
    cluster: Cluster,
    /// Something was asked for by name and is not there.
    missing: bool,
}

impl Getting<'_> {
    fn namespace(&self) -> Option<&str> {
        (!self.args.all_namespaces).then_some(self.cluster.namespace.as_str())
    }

    fn accept(&self) -> Option<&'static str> {
        self.args.output.is_table().then_some(table::ACCEPT)
    }

    async fn fetch(&mut self, served: &Served, name: Option<&str>) -> Result<Option<Value>, Failure> {
        let selector = self.args.selector.as_deref().unwrap_or_default();
        let path = name.map_or_else(
            || with_query(&served.path(self.namespace()), &[("labelSelector", selector)]),
            |name| served.path_of(&self.cluster.namespace, name),
        );
        let answered =
            self.cluster.ask(ApiRequest { accept: self.accept(), ..ApiRequest::get(path) }).await?;
        if let (StatusCode::NOT_FOUND, Some(name)) = (answered.code, name) {
            let target = Target {
                served: served.clone(),
                namespace: self.cluster.namespace.clone(),
                name: name.to_owned(),
            };
            eprintln!("error: {} not found{}", target.title(), target.place());
            self.missing = true;
            return Ok(None);
        }
        answered.into_body().map(Some)
    }

    fn show(&self, found: &[(Served, Vec<Value>)], by_name: bool) -> Result<(), Failure> {
        if self.args.output.is_table() {
            return self.show_tables(found);
        }
        let mut objects = Vec::new();
        for (served, bodies) in found {
            for body in bodies {
                objects.extend(self.objects(served, body).into_iter().map(|object| (served, object)));
            }
        }
        let text = match self.args.output {
            Format::Name => objects
                .iter()
                .map(|(served, object)| served.full_title(name_of(object)) + "\n")
                .collect::<String>(),
            format => {
                let mut objects: Vec<Value> = objects.into_iter().map(|(_, object)| object).collect();
                let whole = match objects.pop() {
                    None if by_name => return Ok(()),
                    Some(only) if by_name && objects.is_empty() => only,
                    last => {
                        objects.extend(last);
                        json!({"apiVersion": "v1", "kind": "List", "items": objects})
                    }
                };
                if format == Format::Json { output::json(&whole)? } else { output::yaml(&whole)? }
            }
        };
        Ok(output::print(&text)?)
    }

    /// One object, or those of a list, which may leave out what they are.
    fn objects(&self, served: &Served, body: &Value) -> Vec<Value> {
        let items = body["items"].as_array().filter(|_| body["metadata"]["name"].is_null());
        let mut objects = items.cloned().unwrap_or_else(|| vec![body.clone()]);
        for object in &mut objects {
            object["apiVersion"] = json!(served.api_version());
            object["kind"] = json!(served.kind);
            self.without_owners(object);
        }
        objects
    }

    fn without_owners(&self, object: &mut Value) {
        if let (false, Some(meta)) = (self.args.show_managed_fields, object["metadata"].as_object_mut()) {
            meta.remove("managedFields");
        }
    }

    fn show_tables(&self, found: &[(Served, Vec<Value>)]) -> Result<(), Failure> {
        let mut tables = Vec::new();
        for (served, bodies) in found {
            let Some(first) = bodies.first() else { continue };
            let mut layout = self.layout(served, first)?;
            let rows: Vec<_> = bodies.iter().flat_map(|body| layout.cells(body)).collect();
            if rows.is_empty() {
                eprintln!("no {} found{}", served.plural, self.place(served));
                continue;
            }
            layout.fit(&rows);
            tables.push(rows.iter().fold(layout.header(), |text, row| text + &layout.line(row)));
        }
        Ok(output::print(&tables.join("\n"))?)
    }

    fn layout(&self, served: &Served, table: &Value) -> Result<Layout, Failure> {
        let namespaced = self.args.all_namespaces && served.namespaced;
        Layout::of(table, self.args.output == Format::Wide, namespaced)
    }

    fn place(&self, served: &Served) -> String {
        match self.namespace() {
            Some(namespace) if served.namespaced => format!(" in namespace {namespace}"),
            _ => String::new(),
        }
    }

    /// What is there, then what changes. Begins again where the server breaks off.
    async fn watch(&mut self, served: &Served, name: Option<&str>) -> Result<Answer, Failure> {
        let path = served.path(self.namespace());
        let only = name.map(|name| format!("metadata.name={name}")).unwrap_or_default();
        let selector = self.args.selector.clone().unwrap_or_default();
        let mut layout = None;
        let mut first = true;
        loop {
            let these = [("fieldSelector", only.as_str()), ("labelSelector", selector.as_str())];
            let list = ApiRequest { accept: self.accept(), ..ApiRequest::get(with_query(&path, &these)) };
            let list = self.cluster.ask(list).await?.into_body()?;
            // A second list repeats what was shown, which is better than to miss something.
            if !self.pass_on(served, &list, false, &mut layout, first)? {
                return Ok(Answer::Yes);
            }
            first = false;
            let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            let watch = [these[0], these[1], ("watch", "true"), ("resourceVersion", revision)];
            let watch = ApiRequest { accept: self.accept(), ..ApiRequest::get(with_query(&path, &watch)) };
            let mut events = self.cluster.follow(watch).await?;
            while let Some(event) = events.event().await? {
                if !self.pass_on(served, &event.object, event.deleted, &mut layout, false)? {
                    return Ok(Answer::Yes);
                }
            }
        }
    }

    /// Prints an event. Returns whether standard output is still open.
    fn pass_on(
        &self,
        served: &Served,
        body: &Value,
        deleted: bool,
        layout: &mut Option<Layout>,
        first: bool,
    ) -> Result<bool, Failure> {
        let text = match self.args.output {
            Format::Table | Format::Wide => {
                let layout = match layout {
                    Some(layout) => layout,
                    None => layout.insert(self.layout(served, body)?),
                };
                let rows = layout.cells(body);
                // Columns that become wider get their header again, so that each header fits the rows below it.
                let grows = layout.fit(&rows);
                let head = if first || grows { layout.header() } else { String::new() };
                let gone = if deleted { "   (deleted)\n" } else { "\n" };
                rows.iter().fold(head, |text, row| text + layout.line(row).trim_end() + gone)
            }
            format => {
                let objects = self.objects(served, body);
                let mut text = String::new();
                for object in objects {
                    text += &match format {
                        Format::Name => served.full_title(name_of(&object)) + "\n",
                        // One line each, so that a program can read them as they come.
                        Format::Json => format!("{object}\n"),
                        _ => format!("---\n{}", output::yaml(&object)?),
                    };
                }
                text
            }
        };
        Ok(output::pass_on(text.as_bytes())?)
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
