// What experts made of tokens, given back to these: each row r of a block g is the weighted output of one expert for one
// token, and `token` says which. A token gets the sum of all its rows, added to what it was; a row of a token that there
// is not, which only fills up a block, is added to none. Rows are read once, and added where their token lies (`red`),
// in no fixed order.
//
//   treadle run examples/combine.mlir --size g=10 --size t=300

!Y = tensor<?x?x128xf16, #diagram.array<[g, r, d]>>
!w = tensor<?x?xf32, #diagram.array<[g, r]>>
!token = tensor<?x?xi32, #diagram.array<[g, r]>>
!X = tensor<?x128xf16, #diagram.array<[t, d]>>
!V = tensor<?x?x128xf32, #diagram.array<[g, r, d]>>
!S = tensor<?x128xf32, #diagram.array<[t, d]>>

func.func @combine(%Y: !Y, %w: !w, %token: !token {diagram.up_to = "t"}, %X: !X) -> !X
    attributes {sizes = #diagram.sizes<g = 6, r = 32, t = 90>} {
  %V = diagram.map (%y = %Y : !Y, %weight = %w : !w) -> !V {
    %z = arith.extf %y : f16 to f32
    %v = arith.mulf %z, %weight : f32
    diagram.yield %v : f32
  }
  %S = diagram.scatter %V at "token[g, r], d" with (token = %token : !token) : !V -> !S
  %T = diagram.map (%x = %X : !X, %s = %S : !S) -> !S {
    %z = arith.extf %x : f16 to f32
    %t = arith.addf %z, %s : f32
    diagram.yield %t : f32
  }
  %Z = diagram.cast %T : !S -> !X
  func.return %Z : !X
}
