// Routing tokens to experts: of 64 the two with the largest scores, the first of them first, and their weights, a
// softmax of their two scores. Positions of extrema are computed as numbers are; the second largest is the largest of
// what the first leaves.
//
//   treadle run examples/routing.mlir --size t=300 --size d=40

!X = tensor<?x?xf16, #diagram.array<[t, d]>>
!W = tensor<64x?xf16, #diagram.array<[e, d]>>
!S = tensor<?x64xf32, #diagram.array<[t, e]>>
!places = tensor<64xi32, #diagram.array<[e]>>
!masked = tensor<?x64xi32, #diagram.array<[t, e]>>
!score = tensor<?xf32, #diagram.array<[t]>>
!place = tensor<?xi32, #diagram.array<[t]>>
!ranks = tensor<2xi32, #diagram.array<[r]>>
!scores = tensor<?x2xf32, #diagram.array<[t, r]>>
!weights = tensor<?x2xf16, #diagram.array<[t, r]>>
!experts = tensor<?x2xi32, #diagram.array<[t, r]>>

func.func @routing(%X: !X, %W: !W) -> (!weights, !experts)
    attributes {sizes = #diagram.sizes<t = 100, d = 256>} {
  %S = diagram.contract %X, %W over [d] accumulate f32 : !X, !W -> !S
  %places = diagram.index -> !places

  // The first of the largest, or of NaNs.
  %first = diagram.reduce max %S over [e] : !S -> !score
  %at_first = diagram.map (%s = %S : !S, %most = %first : !score, %e = %places : !places) -> !masked {
    %equal = arith.cmpf oeq, %s, %most : f32
    %nan = arith.cmpf une, %s, %s : f32
    %found = arith.ori %equal, %nan : i1
    %nowhere = arith.constant 2147483647 : i32
    %at = arith.select %found, %e, %nowhere : i32
    diagram.yield %at : i32
  }
  %expert = diagram.reduce min %at_first over [e] : !masked -> !place

  %left = diagram.map (%s = %S : !S, %taken = %expert : !place, %e = %places : !places) -> !S {
    %is_taken = arith.cmpi eq, %e, %taken : i32
    %nothing = arith.constant 0xFF800000 : f32
    %rest = arith.select %is_taken, %nothing, %s : f32
    diagram.yield %rest : f32
  }
  %second = diagram.reduce max %left over [e] : !S -> !score
  %at_second = diagram.map (%s = %left : !S, %most = %second : !score, %taken = %expert : !place,
                            %e = %places : !places) -> !masked {
    %equal = arith.cmpf oeq, %s, %most : f32
    %nan = arith.cmpf une, %s, %s : f32
    %either = arith.ori %equal, %nan : i1
    %is_left = arith.cmpi ne, %e, %taken : i32
    %found = arith.andi %either, %is_left : i1
    %nowhere = arith.constant 2147483647 : i32
    %at = arith.select %found, %e, %nowhere : i32
    diagram.yield %at : i32
  }
  %other = diagram.reduce min %at_second over [e] : !masked -> !place

  // Side by side.
  %ranks = diagram.index -> !ranks
  %scores = diagram.map (%r = %ranks : !ranks, %a = %first : !score, %b = %second : !score) -> !scores {
    %zero = arith.constant 0 : i32
    %is_first = arith.cmpi eq, %r, %zero : i32
    %score = arith.select %is_first, %a, %b : f32
    diagram.yield %score : f32
  }
  %experts = diagram.map (%r = %ranks : !ranks, %a = %expert : !place, %b = %other : !place) -> !experts {
    %zero = arith.constant 0 : i32
    %is_first = arith.cmpi eq, %r, %zero : i32
    %place = arith.select %is_first, %a, %b : i32
    diagram.yield %place : i32
  }
  %shares = diagram.apply @softmax(%scores) over [r] : (!scores) -> !scores
  %weights = diagram.cast %shares : !scores -> !weights
  func.return %weights, %experts : !weights, !experts
}
