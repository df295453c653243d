//! The statement of a query: how large it may be, and that it only reads.

use datafusion::common::utils::datafusion_strsim::levenshtein;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SQLOptions, SessionContext};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::views::VIEWS;

/// Most operators of a query. A chain of them is a tree of that depth, and the engine's passes over it recurse.
pub(super) const OPERATORS_MAX: usize = 1_000;

/// Start of the error for a statement that does not read, which the engine has too.
pub(super) const NOT_SUPPORTED: &str = "Statement not supported";

/// Most changed letters between a name and the view that was probably meant.
const CHANGES_MAX: usize = 2;

/// `SHOW TABLES`: the views first.
const SHOW_TABLES: &str = "SELECT table_catalog, table_schema, table_name, table_type \
     FROM information_schema.tables WHERE table_schema <> 'information_schema' \
     ORDER BY table_schema <> 'public', table_schema, table_name";

/// Plans the one statement of a query.
pub(super) async fn plan(context: &SessionContext, query: &str) -> Result<LogicalPlan> {
    check_operators(query)?;
    let state = context.state();
    let dialect = state.config().options().sql_parser.dialect;
    let mut statement = state.sql_to_statement(query, &dialect)?;
    if !only_reads(&statement) {
        let text = statement.to_string();
        let name = text.split_whitespace().next().unwrap_or_default();
        return plan_err!("{NOT_SUPPORTED}: {name}");
    }
    if lists_tables(&statement) {
        statement = state.sql_to_statement(SHOW_TABLES, &dialect)?;
    }
    let plan = state.statement_to_plan(statement).await?;
    let read_only = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    read_only.verify_plan(&plan)?;
    Ok(plan)
}

/// The view that somebody meant who asked for a table that does not exist.
pub(super) fn similar_view(table: &str) -> Option<&'static str> {
    let name = table.rsplit('.').next().unwrap_or_default();
    VIEWS
        .into_iter()
        .min_by_key(|view| levenshtein(view, name))
        .filter(|view| levenshtein(view, name) <= CHANGES_MAX)
}

fn check_operators(query: &str) -> Result<()> {
    // The parser reports what is no token.
    let tokens = Tokenizer::new(&GenericDialect {}, query).tokenize();
    let operators = tokens.iter().flatten().filter(|token| is_operator(token));
    let count = operators.count();
    if count > OPERATORS_MAX {
        return plan_err!(
            "the query has {count} operators; at most {OPERATORS_MAX} are allowed: use IN (…) instead of many conditions"
        );
    }
    Ok(())
}

/// Whether a token makes the tree of an expression or a query deeper.
fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::AT
                | Keyword::BETWEEN
                | Keyword::COLLATE
                | Keyword::DIV
                | Keyword::EXCEPT
                | Keyword::ILIKE
                | Keyword::IN
                | Keyword::INTERSECT
                | Keyword::IS
                | Keyword::JOIN
                | Keyword::LIKE
                | Keyword::NOT
                | Keyword::OR
                | Keyword::SIMILAR
                | Keyword::UNION
                | Keyword::XOR
        ),
        Token::EOF
        | Token::Comma
        | Token::LParen
        | Token::Number(..)
        | Token::Period
        | Token::RParen
        | Token::SemiColon
        | Token::SingleQuotedString(_)
        | Token::Whitespace(_) => false,
        _ => true,
    }
}

fn only_reads(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(statement) => is_query(statement),
        Statement::Explain(explained) => only_reads(&explained.statement),
        _ => false,
    }
}

fn is_query(statement: &ast::Statement) -> bool {
    match statement {
        ast::Statement::Query(_)
        | ast::Statement::ShowTables { .. }
        | ast::Statement::ShowColumns { .. }
        | ast::Statement::ExplainTable { .. } => true,
        ast::Statement::Explain { statement, .. } => is_query(statement),
        _ => false,
    }
}

/// Whether it is `SHOW TABLES` without any option.
fn lists_tables(statement: &Statement) -> bool {
    matches!(statement, Statement::Statement(_)) && statement.to_string() == "SHOW TABLES"
}
