//! Reads Parquet files through the store: it verifies each of them before its first use, and notes those that are
//! damaged or missing. These have no rows.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::parquet::arrow::ArrowSchemaConverter;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataReader};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use store::{SnapshotFile, StoreError, VerifiedFile, VerifiedFiles};
use tokio::task::spawn_blocking;

/// As readers of Parquet files return it.
type Reading<'a, T> = Pin<Box<dyn Future<Output = ParquetResult<T>> + Send + 'a>>;

/// Reads the files of a table.
#[derive(Debug)]
pub(super) struct CheckedFiles {
    store: Arc<VerifiedFiles>,
    files: BTreeMap<String, SnapshotFile>,
    schema: SchemaRef,
}

impl CheckedFiles {
    /// `schema` is that of the files.
    pub(super) fn new(
        store: Arc<VerifiedFiles>,
        files: &[SnapshotFile],
        schema: SchemaRef,
    ) -> CheckedFiles {
        let files = files
            .iter()
            .map(|file| (file.path.clone(), file.clone()))
            .collect();
        CheckedFiles {
            store,
            files,
            schema,
        }
    }
}

impl ParquetFileReaderFactory for CheckedFiles {
    fn create_reader(
        &self,
        _partition: usize,
        file: PartitionedFile,
        _footer_bytes: Option<usize>,
        _metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let path = file.object_meta.location.as_ref();
        let file = self
            .files
            .get(path)
            .ok_or_else(|| internal_datafusion_err!("{path} is no file of its table"))?;
        Ok(Box::new(CheckedReader {
            store: self.store.clone(),
            file: file.clone(),
            schema: self.schema.clone(),
            opened: None,
        }))
    }
}

/// Reads one file.
struct CheckedReader {
    store: Arc<VerifiedFiles>,
    file: SnapshotFile,
    schema: SchemaRef,
    opened: Option<Arc<VerifiedFile>>,
}

impl CheckedReader {
    /// The file; `None` if it is damaged.
    async fn opened(&mut self) -> ParquetResult<Option<Arc<VerifiedFile>>> {
        if self.opened.is_none() {
            let store = self.store.clone();
            let file = self.file.clone();
            self.opened = blocking(move || store.open(&file)).await?.map(Arc::new);
        }
        Ok(self.opened.clone())
    }
}

impl AsyncFileReader for CheckedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> Reading<'_, Bytes> {
        Box::pin(async move {
            let Some(file) = self.opened().await? else {
                let path = &self.file.path;
                return Err(ParquetError::General(format!(
                    "{path} is damaged and has no rows"
                )));
            };
            blocking(move || file.read(range)).await
        })
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> Reading<'_, Vec<Bytes>> {
        Box::pin(async move {
            let Some(file) = self.opened().await? else {
                let path = &self.file.path;
                return Err(ParquetError::General(format!(
                    "{path} is damaged and has no rows"
                )));
            };
            blocking(move || ranges.into_iter().map(|range| file.read(range)).collect()).await
        })
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> Reading<'a, Arc<ParquetMetaData>> {
        Box::pin(async move {
            if self.opened().await?.is_none() {
                return without_rows(&self.schema).map(Arc::new);
            }
            let mut footer = ParquetMetaDataReader::new();
            if let Some(options) = options {
                footer = footer
                    .with_metadata_options(Some(options.metadata_options().clone()))
                    .with_column_index_policy(options.column_index_policy())
                    .with_offset_index_policy(options.offset_index_policy());
            }
            let bytes = self.file.bytes;
            footer.load_and_finish(self, bytes).await.map(Arc::new)
        })
    }
}

/// The metadata of a file without row groups.
fn without_rows(schema: &SchemaRef) -> ParquetResult<ParquetMetaData> {
    let columns = Arc::new(ArrowSchemaConverter::new().convert(schema)?);
    Ok(ParquetMetaData::new(
        FileMetaData::new(2, 0, None, None, columns, None),
        Vec::new(),
    ))
}

async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> std::result::Result<T, StoreError> + Send + 'static,
) -> ParquetResult<T> {
    let done = spawn_blocking(read)
        .await
        .map_err(|error| ParquetError::External(error.into()))?;
    done.map_err(|error| ParquetError::External(error.into()))
}
