//! The tables of stores, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::{
    MemTable, MemorySchemaProvider, SchemaProvider as _, TableFunctionArgs, TableFunctionImpl,
    TableProvider,
};
use datafusion::common::{Result, plan_datafusion_err, plan_err};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, ScalarUDF};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use store::{SnapshotTable, StoreSnapshot};

use super::NamedStore;
use super::file_table::FileTable;
use super::json::JsonGet;
use super::stacks::{self, NODE_NAMES, StackFunction};
use super::views;

/// Registers the stores' tables, each store as a schema, and the views over all of them.
pub(super) async fn register(context: &SessionContext, stores: Vec<NamedStore>) -> Result<()> {
    let catalog = context
        .catalog("emberline")
        .ok_or_else(|| plan_datafusion_err!("no catalog"))?;
    let mut names = Vec::new();
    let mut trees = Vec::new();
    for (number, NamedStore { name, snapshot }) in stores.into_iter().enumerate() {
        let url = ObjectStoreUrl::parse(format!("emberline://store{number}"))?;
        context.register_object_store(url.as_ref(), snapshot.object_store());
        let schema = Arc::new(MemorySchemaProvider::new());
        for (name, table) in file_tables(&url, &snapshot) {
            schema.register_table(name, table)?;
        }
        let tree = Arc::new(snapshot.into_stacks());
        let nodes = stacks::node_table(&tree)?;
        let nodes = MemTable::try_new(nodes[0].schema(), vec![nodes])?;
        schema.register_table(NODE_NAMES.to_owned(), Arc::new(nodes))?;
        catalog.register_schema(&views::schema_of(&name), schema)?;
        names.push(name);
        trees.push(tree);
    }
    context.register_udf(ScalarUDF::from(StackFunction::new(trees)));
    context.register_udf(ScalarUDF::from(JsonGet::new()));
    for (view, text) in views::all(&names) {
        context
            .sql(&format!("CREATE VIEW {view} AS {text}"))
            .await?;
    }
    for name in views::BY_RESOLUTION {
        let mut by_resolution = BTreeMap::new();
        for resolution in views::RESOLUTIONS {
            let view = context
                .table_provider(format!("{name}_{resolution}"))
                .await?;
            by_resolution.insert(resolution, view);
        }
        context.register_udtf(
            name,
            Arc::new(ByResolution {
                name,
                views: by_resolution,
            }),
        );
    }
    Ok(())
}

/// The tables of a store by name.
fn file_tables(url: &ObjectStoreUrl, snapshot: &StoreSnapshot) -> BTreeMap<String, Arc<FileTable>> {
    let mut tables: BTreeMap<String, Arc<FileTable>> = snapshot
        .tables()
        .into_iter()
        .map(|table: SnapshotTable| {
            let name = table.name.clone();
            (
                name,
                Arc::new(FileTable::new(url.clone(), table, snapshot.files())),
            )
        })
        .collect();
    for resolution in views::RESOLUTIONS {
        // Without stacks, and without workers.
        let names = [
            format!("totals_{resolution}"),
            format!("samples_{resolution}_all"),
        ];
        let summaries = names
            .iter()
            .filter_map(|name| tables.get(name).cloned())
            .collect();
        let samples = tables
            .remove(&format!("samples_{resolution}"))
            .and_then(Arc::into_inner);
        if let Some(samples) = samples {
            let samples = Arc::new(samples.with_summaries(summaries));
            tables.insert(format!("samples_{resolution}"), samples);
        }
    }
    tables
}

/// A function such as `samples('1s')`.
#[derive(Debug)]
struct ByResolution {
    name: &'static str,
    views: BTreeMap<&'static str, Arc<dyn TableProvider>>,
}

impl TableFunctionImpl for ByResolution {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let asked = match args.exprs() {
            [Expr::Literal(ScalarValue::Utf8(Some(text)), _)] => text.as_str(),
            _ => "",
        };
        match self.views.get(asked) {
            Some(view) => Ok(view.clone()),
            None => plan_err!(
                "{0}() needs a resolution: {0}('1s'), and 1m, 10m, 1h or 1d instead of 1s",
                self.name
            ),
        }
    }
}
