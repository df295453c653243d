use super::*;

#[test]
fn errors_name_what_is_wrong_in_one_line() {
    let told = |error: DataFusionError| explain(error).to_string();
    let plan = DataFusionError::Plan("DDL not supported: CreateView\nmore".to_owned());
    assert!(told(plan).starts_with("DDL not supported: CreateView; queries only read: SELECT"));
    let memory = DataFusionError::ResourcesExhausted("sort\n2".to_owned());
    assert!(
        told(memory).starts_with("the query needs more than the 512 MiB that it may take: sort;")
    );
}
