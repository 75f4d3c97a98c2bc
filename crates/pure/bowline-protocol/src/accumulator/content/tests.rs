//! Tests of streamed content: merging of pieces, and sizes.

use agent_client_protocol_schema::v1::{Annotations, ResourceLink};
use expect_test::expect;
use proptest::prelude::*;

use super::*;

fn resource_link(name: &str) -> ContentBlock {
    ContentBlock::ResourceLink(ResourceLink::new(name, "file:///a"))
}

#[test]
fn text_is_put_together_and_blocks_stay_where_they_came() {
    let marked = ContentBlock::Text(TextContent::new("marked").annotations(Annotations::new()));
    let body: StreamedContent =
        [&"a".into(), &"b".into(), &resource_link("l"), &"".into(), &"c".into(), &marked, &"d".into()]
            .into_iter()
            .collect();
    assert_eq!(body.text(), "abcmarkedd");
    let shown: Vec<_> = body.blocks().iter().map(|block| serde_json::to_string(block).unwrap()).collect();
    expect![[r#"
        {"type":"text","text":"ab"}
        {"type":"resource_link","name":"l","uri":"file:///a"}
        {"type":"text","text":"c"}
        {"type":"text","annotations":{},"text":"marked"}
        {"type":"text","text":"d"}"#]]
    .assert_eq(&shown.join("\n"));
    assert_eq!(body.pieces().next_back(), Some(ContentPiece::Text("d")));
}

#[test]
fn a_body_counts_its_text_its_blocks_and_its_parts() {
    let mut body = StreamedContent::default();
    body.push(&"abc".into());
    assert_eq!(body.bytes(), 64 + 3);
    body.push(&"de".into());
    assert_eq!(body.bytes(), 64 + 5);
    body.push(&"".into());
    assert_eq!(body.bytes(), 64 + 5);
    let block = resource_link("l");
    let json = serde_json::to_string(&block).unwrap().len() as u64;
    body.push(&block);
    assert_eq!(body.bytes(), 64 + 5 + 64 + json);
    body.shrink();
    assert_eq!((body.bytes(), body.truncated_bytes()), (64 + json, 64 + 5));
    body.shrink();
    body.shrink();
    assert_eq!((body.bytes(), body.truncated_bytes()), (0, 64 + 5 + 64 + json));
}

#[test]
fn a_piece_is_full_at_its_size_and_a_large_chunk_is_one_piece() {
    let mut body = StreamedContent::default();
    for text in [
        "a".repeat(MAX_TEXT_PIECE_BYTES - 1),
        "b".into(),
        "c".into(),
        "d".repeat(MAX_TEXT_PIECE_BYTES * 3),
        "e".into(),
    ] {
        body.push(&text.into());
    }
    let lengths: Vec<_> = body
        .pieces()
        .map(|piece| match piece {
            ContentPiece::Text(text) => text.len(),
            ContentPiece::Block(_) => 0,
        })
        .collect();
    assert_eq!(lengths, [MAX_TEXT_PIECE_BYTES, 1, MAX_TEXT_PIECE_BYTES * 3, 1]);
}

proptest! {
    #[test]
    fn the_text_is_the_chunks_one_after_the_other(chunks in proptest::collection::vec(".{0,90}", 0..60)) {
        let blocks: Vec<ContentBlock> = chunks.iter().map(|chunk| chunk.clone().into()).collect();
        let body: StreamedContent = blocks.iter().collect();
        prop_assert_eq!(body.text(), chunks.concat());
        prop_assert!(body.blocks().len() <= 1);
    }
}
