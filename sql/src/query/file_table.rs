//! A table of the store: Parquet files that the manifest lists.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{
    Column, ColumnStatistics, Result, ScalarValue, Statistics, project_schema,
};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use store::{SnapshotFile, SnapshotTable, VerifiedFiles};

use super::checked_files::CheckedFiles;
#[cfg(feature = "ballista")]
use {
    super::stacks::uses_stacks, datafusion::common::DFSchema,
    datafusion::common::pruning::PrunableStatistics, datafusion::execution::SessionState,
    datafusion::logical_expr::TableScan, datafusion::logical_expr::utils::conjunction,
    datafusion::physical_optimizer::pruning::PruningPredicateBuilder,
};

/// The column with the start of the period, in tables of sums.
pub(super) const PERIOD: &str = "ts";

/// A table of one store.
#[derive(Debug)]
pub(super) struct FileTable {
    store: ObjectStoreUrl,
    schema: SchemaRef,
    files: Vec<SnapshotFile>,
    reader: Arc<CheckedFiles>,
    /// Tables with the same sums and fewer columns, the smallest first.
    summaries: Vec<Arc<FileTable>>,
}

impl FileTable {
    pub(super) fn new(
        store: ObjectStoreUrl,
        table: SnapshotTable,
        files: Arc<VerifiedFiles>,
    ) -> FileTable {
        let schema = Arc::new(with_views(&table.schema));
        let reader = Arc::new(CheckedFiles::new(files, &table.files, table.schema));
        FileTable {
            store,
            schema,
            files: table.files,
            reader,
            summaries: Vec::new(),
        }
    }

    pub(super) fn with_summaries(self, summaries: Vec<Arc<FileTable>>) -> FileTable {
        FileTable { summaries, ..self }
    }

    /// The smallest table that has the sums of these columns.
    pub(super) fn summary<'a>(
        &self,
        columns: impl Iterator<Item = &'a Column> + Clone,
    ) -> Option<Arc<FileTable>> {
        self.summaries
            .iter()
            .find(|table: &&Arc<FileTable>| {
                columns
                    .clone()
                    .all(|column| table.schema.index_of(&column.name).is_ok())
            })
            .cloned()
    }

    /// A file, with the bounds of its periods: so it is not opened for a range that it has nothing of.
    fn file(&self, file: &SnapshotFile) -> PartitionedFile {
        let statistics = Arc::new(self.statistics(file));
        PartitionedFile::new(file.path.clone(), file.bytes).with_statistics(statistics)
    }

    fn statistics(&self, file: &SnapshotFile) -> Statistics {
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = Precision::Exact(usize::try_from(file.rows).unwrap_or(usize::MAX));
        if let Some(seconds) = &file.seconds
            && let Ok(column) = self.schema.index_of(PERIOD)
        {
            // The exact end of the last period would need the tier; a greater maximum only reads more.
            let time = |seconds: i64| {
                ScalarValue::TimestampMillisecond(Some(seconds * 1_000), Some("UTC".into()))
            };
            statistics.column_statistics[column] = ColumnStatistics {
                null_count: Precision::Exact(0),
                min_value: Precision::Exact(time(i64::from(seconds.start))),
                max_value: Precision::Exact(time(i64::from(seconds.end) - 1)),
                ..ColumnStatistics::new_unknown()
            };
        }
        statistics
    }

    /// The files that may have rows which fulfill these conditions.
    #[cfg(feature = "ballista")]
    pub(super) fn matching_files(
        &self,
        state: &SessionState,
        scan: &TableScan,
    ) -> Result<Vec<&SnapshotFile>> {
        let table = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &self.schema)?;
        let conditions = scan
            .filters
            .iter()
            .filter(|expr| !uses_stacks(expr))
            .cloned();
        let Some(condition) = conjunction(conditions) else {
            return Ok(self.files.iter().collect());
        };
        let condition = state.create_physical_expr(condition, &table)?;
        let statistics = self
            .files
            .iter()
            .map(|file| Arc::new(self.statistics(file)))
            .collect();
        let statistics = PrunableStatistics::new(statistics, self.schema.clone());
        let predicate = PruningPredicateBuilder::new()
            .with_file_schema(self.schema.clone())
            .try_build(condition)?;
        let may_match = predicate.prune(&statistics)?;
        let files = self.files.iter().zip(may_match);
        Ok(files
            .filter_map(|(file, may_match)| may_match.then_some(file))
            .collect())
    }
}

/// The same schema with views for texts: equal texts of a batch are in memory once.
fn with_views(schema: &Schema) -> Schema {
    Schema::new(
        schema
            .fields()
            .iter()
            .map(|field: &Arc<Field>| match field.data_type() {
                DataType::Utf8 => field.as_ref().clone().with_data_type(DataType::Utf8View),
                _ => field.as_ref().clone(),
            })
            .collect::<Vec<_>>(),
    )
}

#[async_trait::async_trait]
impl TableProvider for FileTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(project_schema(
                &self.schema,
                projection,
            )?)));
        }
        let files = self.files.iter().map(|file| self.file(file)).collect();
        let groups = FileGroup::new(files).split_files(state.config().target_partitions());
        let rows = self.files.iter().map(|file| file.rows).sum::<u64>();
        let mut statistics = Statistics::new_unknown(&self.schema);
        // The optimizer answers nothing from a number that may be inexact.
        statistics.num_rows = Precision::Inexact(usize::try_from(rows).unwrap_or(usize::MAX));
        let source = ParquetSource::new(self.schema.clone())
            .with_parquet_file_reader_factory(self.reader.clone());
        let source = Arc::new(source);
        let scan = FileScanConfigBuilder::new(self.store.clone(), source)
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_limit(limit)
            .with_projection_indices(projection.cloned())?
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // They skip files, row groups and pages.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}
